import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.RegexSubscriptionMode;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.impl.MultiTopicsConsumerImpl;

/** Subscriptions by pattern. The client asks for the list of topics once an hour: changes come from the watcher. */
final class Patterns {
    private Patterns() {
    }

    private static Set<String> topics(Consumer<String> consumer) {
        Set<String> found = new TreeSet<>();
        for (var each : ((MultiTopicsConsumerImpl<String>) consumer).getConsumers()) {
            found.add(each.getTopic());
        }
        return found;
    }

    private static void sees(Consumer<String> consumer, String... topics) throws Exception {
        Set<String> expected = new TreeSet<>(List.of(topics));
        World.until(() -> topics(consumer).equals(expected), topics(consumer) + " instead of " + expected);
    }

    static void watched(World world, String prefix) throws Exception {
        String a = prefix + "-a";
        String b = prefix + "-b";
        String c = prefix + "-c";
        world.producer(a).close();
        world.producer(prefix.replace("patterns", "others")).close();
        try (Consumer<String> consumer = world.client.newConsumer(Schema.STRING)
                .topicsPattern(Pattern.compile(prefix + "-.*")).patternAutoDiscoveryPeriod(1, TimeUnit.HOURS)
                .subscriptionTopicsMode(RegexSubscriptionMode.PersistentOnly).subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
            sees(consumer, a);
            try (Producer<String> producer = world.producer(b)) {
                producer.send("to b");
                World.equal(World.take(consumer, 1), List.of("to b"), "of a new topic");
            }
            sees(consumer, a, b);
            world.rest("PUT", World.path(c) + "/partitions", "2");
            sees(consumer, a, b, c + "-partition-0", c + "-partition-1");
            try (Producer<String> producer = world.producer(c)) {
                World.send(producer, World.numbered("to c ", 0, 4));
                World.equal(World.take(consumer, 4).stream().sorted().toList(), World.numbered("to c ", 0, 4),
                    "of new partitions");
            }
            world.rest("DELETE", World.path(b) + "?force=true", "");
            sees(consumer, a, c + "-partition-0", c + "-partition-1");
            world.rest("DELETE", World.path(c) + "/partitions?force=true", "");
            sees(consumer, a);
            try (Producer<String> producer = world.producer(a)) {
                producer.send("to a");
                World.equal(World.take(consumer, 1), List.of("to a"), "of the topic that stayed");
            }
            canBeMadeAgain(world, b);
            try (Producer<String> producer = world.producer(b)) {
                producer.send("to the next b");
                World.equal(World.take(consumer, 1), List.of("to the next b"), "of a topic that is there again");
            }
            sees(consumer, a, b);
        }
    }

    /** Wait until a deleted topic may be made again. */
    private static void canBeMadeAgain(World world, String topic) throws Exception {
        World.until(() -> {
            int status = world.answer("PUT", World.path(topic), "").statusCode();
            return status < 300 || status == 409;
        }, "it can be made again");
    }
}

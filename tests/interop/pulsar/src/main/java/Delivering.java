import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerEventListener;
import org.apache.pulsar.client.api.KeySharedPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Range;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.common.util.Murmur3_32Hash;

/** Delayed messages, ranges of keys, and priorities of consumers. */
final class Delivering {
    private static final int RANGE = 1 << 16;

    private Delivering() {
    }

    static void delays(World world, String prefix) throws Exception {
        for (SubscriptionType type : new SubscriptionType[] {SubscriptionType.Shared, SubscriptionType.Key_Shared}) {
            String topic = prefix + "-" + type;
            try (Producer<String> producer = world.producer(topic);
                    Consumer<String> consumer = world.subscribing(topic, type).subscribe();
                    Consumer<String> exclusive = world.subscribing(topic, SubscriptionType.Exclusive)
                        .subscriptionName("at once").subscribe()) {
                long late = System.currentTimeMillis() + 4_000;
                producer.newMessage().key("a").value("late").deliverAt(late).send();
                long soon = System.currentTimeMillis() + 2_000;
                producer.newMessage().key("b").value("soon").deliverAfter(2, TimeUnit.SECONDS).send();
                producer.newMessage().key("c").value("past").deliverAt(System.currentTimeMillis() - 1_000).send();
                producer.newMessage().key("d").value("plain").send();
                World.equal(World.take(exclusive, 4), List.of("late", "soon", "past", "plain"), "without delay");
                World.equal(World.take(consumer, 2), List.of("past", "plain"), "before the delay");
                World.equal(World.take(consumer, 1), List.of("soon"), "first of the delayed");
                World.check(System.currentTimeMillis() >= soon, "it came early");
                World.equal(World.take(consumer, 1), List.of("late"), "second of the delayed");
                World.check(System.currentTimeMillis() >= late, "it came early");
                World.check(System.currentTimeMillis() < late + 10_000, "it came too late");
                World.silent(consumer);
            }
        }
    }

    private static Consumer<String> sticky(World world, String topic, Range... ranges) throws Exception {
        return world.subscribing(topic, SubscriptionType.Key_Shared)
            .keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(ranges)).subscribe();
    }

    private static int slot(String key) {
        return Murmur3_32Hash.getInstance().makeHash(key.getBytes(StandardCharsets.UTF_8)) % RANGE;
    }

    /** Receive all that comes until nothing does, check its range, and return the values. */
    private static List<String> within(Consumer<String> consumer, int count, Range... ranges) throws Exception {
        List<String> found = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            Message<String> message = World.next(consumer);
            int slot = slot(message.getKey());
            boolean inside = false;
            for (Range range : ranges) {
                inside |= range.getStart() <= slot && slot <= range.getEnd();
            }
            World.check(inside, message.getKey() + " at " + slot + " is not in the ranges");
            found.add(message.getValue());
            consumer.acknowledge(message);
        }
        World.silent(consumer);
        return found;
    }

    static void stickyRanges(World world, String topic) throws Exception {
        Range[] outer = {Range.of(0, 9_999), Range.of(50_000, RANGE - 1)};
        Range[] inner = {Range.of(10_000, 49_999)};
        int outside = 0;
        try (Producer<String> producer = world.producer(topic); Consumer<String> first = sticky(world, topic, outer)) {
            World.refused(PulsarClientException.ConsumerAssignException.class,
                () -> sticky(world, topic, Range.of(9_999, 20_000)));
            World.refused(PulsarClientException.class,
                () -> world.subscribing(topic, SubscriptionType.Key_Shared).subscribe());
            for (int number = 0; number < 300; number++) {
                String key = "key " + number % 100;
                int slot = slot(key);
                outside += slot < 10_000 || slot >= 50_000 ? 1 : 0;
                producer.newMessage().key(key).value(key + " " + number).send();
            }
            Set<String> found = new HashSet<>(within(first, outside, outer));
            try (Consumer<String> second = sticky(world, topic, inner)) {
                List<String> rest = within(second, 300 - outside, inner);
                found.addAll(rest);
                World.equal(found.size(), 300, "messages");
                producer.newMessage().key("key 1").value("last").send();
                boolean mine = slot("key 1") >= 10_000 && slot("key 1") < 50_000;
                World.equal(World.take(mine ? second : first, 1), List.of("last"), "message");
            }
        }
        outOfOrder(world, topic + "-any-order");
    }

    private static void outOfOrder(World world, String topic) throws Exception {
        KeySharedPolicy policy = KeySharedPolicy.autoSplitHashRange().setAllowOutOfOrderDelivery(true);
        try (Producer<String> producer = world.producer(topic);
                Consumer<String> first = world.subscribing(topic, SubscriptionType.Key_Shared).keySharedPolicy(policy)
                    .subscribe()) {
            World.send(producer, World.numbered("m", 0, 20));
            for (int number = 0; number < 20; number++) {
                World.next(first);
            }
            try (Consumer<String> second = world.subscribing(topic, SubscriptionType.Key_Shared)
                    .keySharedPolicy(policy).subscribe()) {
                for (int number = 0; number < 100; number++) {
                    producer.newMessage().key("k" + number).value("n" + number).send();
                }
                World.next(second);  // nothing was acknowledged: in order the second one would have to wait for that
            }
        }
    }

    static void priorities(World world, String topic) throws Exception {
        try (Producer<String> producer = world.producer(topic);
                Consumer<String> last = world.subscribing(topic, SubscriptionType.Shared).priorityLevel(1)
                    .receiverQueueSize(5).subscribe();
                Consumer<String> first = world.subscribing(topic, SubscriptionType.Shared).priorityLevel(0)
                    .receiverQueueSize(10).subscribe()) {
            World.send(producer, World.numbered("m", 0, 10));
            World.silent(last);
            World.send(producer, World.numbered("m", 10, 15));
            World.equal(World.take(last, 5), World.numbered("m", 10, 15), "at the lower level");
            World.equal(World.take(first, 10), World.numbered("m", 0, 10), "at the higher level");
        }
        failover(world, topic + "-failover");
    }

    private static void failover(World world, String topic) throws Exception {
        List<String> events = Collections.synchronizedList(new ArrayList<>());
        try (Producer<String> producer = world.producer(topic);
                Consumer<String> spare = watched(world, topic, "spare", 1, events)) {
            World.until(() -> events.contains("spare active"), "the only consumer is active");
            try (Consumer<String> main = watched(world, topic, "main", 0, events)) {
                World.until(() -> events.contains("main active") && events.contains("spare inactive"), "" + events);
                producer.send("to main");
                World.equal(World.take(main, 1), List.of("to main"), "messages");
                World.silent(spare);
                events.clear();
            }
            World.until(() -> events.contains("spare active"), "the spare consumer is active again");
            producer.send("to spare");
            World.equal(World.take(spare, 1), List.of("to spare"), "messages");
        }
    }

    private static Consumer<String> watched(World world, String topic, String name, int level, List<String> events)
            throws Exception {
        return world.subscribing(topic, SubscriptionType.Failover).consumerName(name).priorityLevel(level)
            .consumerEventListener(new ConsumerEventListener() {
                @Override
                public void becameActive(Consumer<?> consumer, int partition) {
                    events.add(name + " active");
                }

                @Override
                public void becameInactive(Consumer<?> consumer, int partition) {
                    events.add(name + " inactive");
                }
            }).subscribe();
    }
}

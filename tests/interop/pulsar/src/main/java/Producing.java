import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionType;

/** Exclusive producers, and messages in chunks. */
final class Producing {
    private Producing() {
    }

    static void accessModes(World world, String topic) throws Exception {
        Producer<String> owner = with(world, topic, ProducerAccessMode.Exclusive).create();
        owner.send("by the first");
        World.refused(PulsarClientException.ProducerFencedException.class,
            () -> with(world, topic, ProducerAccessMode.Exclusive).create());
        World.refused(PulsarClientException.ProducerBusyException.class,
            () -> with(world, topic, ProducerAccessMode.Shared).create());
        CompletableFuture<Producer<String>> waiting = with(world, topic, ProducerAccessMode.WaitForExclusive)
            .createAsync();
        World.refused(TimeoutException.class, () -> waiting.get(700, TimeUnit.MILLISECONDS));
        owner.close();
        Producer<String> second = waiting.get(20, TimeUnit.SECONDS);
        second.send("by the second");
        Producer<String> third = with(world, topic, ProducerAccessMode.ExclusiveWithFencing).create();
        third.send("by the third");
        World.refused(PulsarClientException.class, () -> second.send("by a fenced one"));
        World.until(() -> !second.isConnected(), "the fenced producer is closed");
        third.close();
        Producer<String> shared = with(world, topic, ProducerAccessMode.Shared).create();
        World.refused(PulsarClientException.ProducerFencedException.class,
            () -> with(world, topic, ProducerAccessMode.Exclusive).create());
        shared.close();
        try (Consumer<String> consumer = world.subscribing(topic, SubscriptionType.Exclusive).subscribe()) {
            World.equal(World.take(consumer, 3), List.of("by the first", "by the second", "by the third"), "messages");
            World.silent(consumer);
        }
    }

    private static ProducerBuilder<String> with(World world, String topic, ProducerAccessMode mode) {
        return world.client.newProducer(Schema.STRING).topic(topic).accessMode(mode).enableBatching(false);
    }

    /** Chunks of several producers come mixed; each message arrives whole at one of the Shared consumers. */
    static void chunks(World world, String topic) throws Exception {
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            consumers.add(world.client.newConsumer().topic(topic).subscriptionName("s")
                .subscriptionType(SubscriptionType.Shared).receiverQueueSize(4).subscribe());
        }
        List<CompletableFuture<?>> sent = new ArrayList<>();
        List<Producer<byte[]>> producers = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            producers.add(world.client.newProducer().topic(topic).enableBatching(false).enableChunking(true)
                .chunkMaxMessageSize(20_000).create());
        }
        Map<String, Integer> expected = new HashMap<>();
        for (int round = 0; round < 8; round++) {
            for (int number = 0; number < 3; number++) {
                String name = number + "-" + round;
                int size = round % 4 == 3 ? 10 : 90_000 + round;
                expected.put(name, size);
                sent.add(producers.get(number).newMessage().property("name", name).value(payload(name, size))
                    .sendAsync());
            }
        }
        CompletableFuture.allOf(sent.toArray(CompletableFuture[]::new)).get(20, TimeUnit.SECONDS);
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        List<String> found = new ArrayList<>();
        while (found.size() < expected.size()) {
            World.check(System.nanoTime() < deadline, "only " + found + " came");
            for (Consumer<byte[]> consumer : consumers) {
                Message<byte[]> message = consumer.receive(50, TimeUnit.MILLISECONDS);
                if (message != null) {
                    String name = message.getProperty("name");
                    byte[] wanted = payload(name, expected.get(name));
                    World.check(Arrays.equals(message.getData(), wanted), name + " is damaged");
                    found.add(name);
                    consumer.acknowledge(message);
                }
            }
        }
        Collections.sort(found);
        World.equal(found, expected.keySet().stream().sorted().toList(), "messages");
        for (Consumer<byte[]> consumer : consumers) {
            World.silent(consumer);
            consumer.close();
        }
        for (Producer<byte[]> producer : producers) {
            producer.close();
        }
        World.until(() -> world.rest("GET", World.path(topic) + "/stats", "").replace(" ", "")
            .contains("\"msgBacklog\":0,"), "all chunks are acknowledged");
    }

    private static byte[] payload(String name, int size) {
        byte[] made = new byte[size];
        for (int at = 0; at < size; at++) {
            made[at] = (byte) (name.hashCode() + at * 31);
        }
        return made;
    }
}

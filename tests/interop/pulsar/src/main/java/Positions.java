import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageListener;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TableView;
import org.apache.pulsar.common.naming.TopicName;

/** Seeks, compacted topics, and the end of a topic. */
final class Positions {
    private Positions() {
    }

    static void seeks(World world, String prefix) throws Exception {
        for (boolean batched : new boolean[] {false, true}) {
            seek(world, prefix + "-" + batched, batched);
        }
        seekByFunction(world, prefix + "-parts");
    }

    private static void seek(World world, String topic, boolean batched) throws Exception {
        List<MessageId> ids = new ArrayList<>();
        long between;
        try (Producer<String> producer = world.producer(topic, batched)) {
            ids.addAll(World.send(producer, World.numbered("m", 0, 10)));
            Thread.sleep(30);
            between = System.currentTimeMillis();
            Thread.sleep(30);
            ids.addAll(World.send(producer, World.numbered("m", 10, 20)));
            // Acknowledgements that the client of 4.2 has not sent when it seeks count for what it receives afterwards.
            try (Consumer<String> consumer = world.subscribing(topic, SubscriptionType.Exclusive)
                    .startMessageIdInclusive().acknowledgmentGroupTime(0, TimeUnit.SECONDS).subscribe()) {
                World.equal(World.take(consumer, 20), World.numbered("m", 0, 20), "messages");
                consumer.seek(between);
                World.equal(World.take(consumer, 10), World.numbered("m", 10, 20), "since the time");
                consumer.seek(ids.get(14));
                World.equal(World.take(consumer, 6), World.numbered("m", 14, 20), "since the id");
                consumer.seek(MessageId.earliest);
                World.equal(World.take(consumer, 20), World.numbered("m", 0, 20), "since the beginning");
                consumer.seek(System.currentTimeMillis() + 60_000);
                World.silent(consumer);
                consumer.seek(id -> between);
                World.equal(World.take(consumer, 10), World.numbered("m", 10, 20), "by function, a time");
                consumer.seek(id -> ids.get(17));
                World.equal(World.take(consumer, 3), World.numbered("m", 17, 20), "by function, an id");
                consumer.seek(MessageId.latest);
                World.silent(consumer);
                World.send(producer, List.of("after"));
                World.equal(World.take(consumer, 1), List.of("after"), "after the end");
            }
            try (Reader<String> reader = world.client.newReader(Schema.STRING).topic(topic)
                    .startMessageId(ids.get(5)).create()) {
                World.equal(reader.readNext(20, TimeUnit.SECONDS).getValue(), "m6", "after the id");
                reader.seek(between);
                World.equal(reader.readNext(20, TimeUnit.SECONDS).getValue(), "m10", "since the time");
                reader.seek(ids.get(15));
                World.equal(reader.readNext(20, TimeUnit.SECONDS).getValue(), "m16", "after the sought id");
                World.equal(world.client.newReader(Schema.STRING).topic(topic).startMessageId(ids.get(5))
                    .startMessageIdInclusive().create().readNext(20, TimeUnit.SECONDS).getValue(), "m5", "with the id");
            }
        }
        try (Reader<String> reader = world.client.newReader(Schema.STRING).topic(topic)
                .startMessageFromRollbackDuration(1, TimeUnit.HOURS).create()) {
            World.equal(reader.readNext(20, TimeUnit.SECONDS).getValue(), "m0", "of the last hour");
            List<MessageId> last = reader.getLastMessageIds().stream().map(each -> (MessageId) each).toList();
            reader.seek(last.get(0));
            World.check(!reader.hasMessageAvailable(), "a message after the last");
        }
    }

    /** Each partition is sought for itself, by a time or by an id. */
    private static void seekByFunction(World world, String topic) throws Exception {
        world.rest("PUT", World.path(topic) + "/partitions", "2");
        List<MessageId> ids = new ArrayList<>();
        for (int partition = 0; partition < 2; partition++) {
            try (Producer<String> producer = world.producer(topic + "-partition-" + partition)) {
                ids.addAll(World.send(producer, World.numbered("p" + partition + "-", 0, 5)));
            }
        }
        try (Consumer<String> consumer = world.subscribing(topic, SubscriptionType.Exclusive)
                .startMessageIdInclusive().subscribe()) {
            World.take(consumer, 10);
            consumer.seek(name -> TopicName.getPartitionIndex(name) == 0 ? ids.get(3) : (Object) 0L);
            World.equal(World.take(consumer, 7).stream().sorted().toList(),
                List.of("p0-3", "p0-4", "p1-0", "p1-1", "p1-2", "p1-3", "p1-4"), "of the partitions");
            World.silent(consumer);
        }
    }

    private static void compact(World world, String topic) throws Exception {
        world.rest("PUT", World.path(topic) + "/compaction", "");
        World.until(() -> world.rest("GET", World.path(topic) + "/compaction", "").contains("SUCCESS"), "compacted");
    }

    private static void set(Producer<String> producer, String key, String value) {
        producer.newMessage().key(key).value(value).sendAsync();
    }

    static void readCompacted(World world, String prefix) throws Exception {
        for (boolean batched : new boolean[] {false, true}) {
            String topic = prefix + "-" + batched;
            try (Producer<String> producer = world.producer(topic, batched)) {
                for (int number = 0; number < 40; number++) {
                    set(producer, "k" + number % 4, "v" + number);
                }
                set(producer, "k0", null);
                producer.flush();
                compact(world, topic);
                set(producer, "k1", "after");
                producer.flush();
                try (Consumer<String> consumer = world.subscribing(topic, SubscriptionType.Exclusive)
                        .readCompacted(true).subscribe()) {
                    World.equal(World.take(consumer, 4), List.of("v37", "v38", "v39", "after"), "compacted");
                    World.silent(consumer);
                }
                World.refused(PulsarClientException.InvalidConfigurationException.class, () -> world
                    .subscribing(topic, SubscriptionType.Shared).readCompacted(true).subscribe());
                compact(world, topic);
                try (Reader<String> reader = world.client.newReader(Schema.STRING).topic(topic).readCompacted(true)
                        .startMessageId(MessageId.earliest).create()) {
                    List<String> found = new ArrayList<>();
                    while (reader.hasMessageAvailable()) {
                        found.add(reader.readNext(20, TimeUnit.SECONDS).getValue());
                    }
                    World.equal(found, List.of("v38", "v39", "after"), "compacted twice");
                }
                try (Consumer<String> consumer = world.subscribing(topic, SubscriptionType.Exclusive)
                        .subscriptionName("all").subscribe()) {
                    World.equal(World.next(consumer).getValue(), "v0", "first of all messages");
                }
            }
        }
    }

    static void tableViews(World world, String prefix) throws Exception {
        for (boolean parts : new boolean[] {false, true}) {
            String topic = prefix + "-" + parts;
            if (parts) {
                world.rest("PUT", World.path(topic) + "/partitions", "3");
            }
            try (Producer<String> producer = world.producer(topic)) {
                for (int number = 0; number < 60; number++) {
                    set(producer, "k" + number % 6, "v" + number);
                }
                producer.flush();
                compact(world, parts ? topic + "-partition-0" : topic);
                set(producer, "k0", null);
                producer.flush();
                Map<String, String> seen = new ConcurrentHashMap<>();
                try (TableView<String> view = world.client.newTableView(Schema.STRING).topic(topic)
                        .autoUpdatePartitionsInterval(1, TimeUnit.SECONDS).create()) {
                    World.equal(view.size(), 5, "keys");
                    World.check(!view.containsKey("k0"), "a deleted key");
                    World.equal(view.get("k1"), "v55", "value");
                    view.forEachAndListen((key, value) -> seen.put(key, value == null ? "none" : value));
                    World.equal(seen.size(), 5, "keys of the listener");
                    set(producer, "new", "value");
                    set(producer, "k1", null);
                    producer.flush();
                    World.until(() -> "value".equals(view.get("new")) && view.get("k1") == null, "" + view.entrySet());
                    World.until(() -> "value".equals(seen.get("new")) && "none".equals(seen.get("k1")), "" + seen);
                    set(producer, "newest", "value");
                    producer.flush();
                    view.refresh();
                    World.equal(view.get("newest"), "value", "after a refresh");
                }
            }
        }
    }

    static void endOfTopic(World world, String topic) throws Exception {
        Producer<String> producer = world.producer(topic);
        World.send(producer, World.numbered("m", 0, 3));
        List<String> ended = Collections.synchronizedList(new ArrayList<>());
        try (Consumer<String> consumer = world.subscribing(topic, SubscriptionType.Shared).subscribe();
                Reader<String> reader = world.client.newReader(Schema.STRING).topic(topic)
                    .startMessageId(MessageId.earliest).create();
                Consumer<String> listening = world.subscribing(topic, SubscriptionType.Exclusive)
                    .subscriptionName("listening").messageListener(new MessageListener<>() {
                        @Override
                        public void received(Consumer<String> from, Message<String> message) {
                            from.acknowledgeAsync(message);
                        }

                        @Override
                        public void reachedEndOfTopic(Consumer<String> from) {
                            ended.add(from.getSubscription());
                        }
                    }).subscribe()) {
            World.check(!consumer.hasReachedEndOfTopic(), "the end before the end");
            world.rest("POST", World.path(topic) + "/terminate", "");
            World.refused(PulsarClientException.TopicTerminatedException.class, () -> producer.send("too late"));
            World.refused(PulsarClientException.TopicTerminatedException.class, () -> world.producer(topic));
            World.check(!consumer.hasReachedEndOfTopic(), "the end before the last acknowledgement");
            World.equal(World.take(consumer, 3), World.numbered("m", 0, 3), "messages");
            World.until(consumer::hasReachedEndOfTopic, "the consumer reaches the end");
            World.until(() -> ended.contains("listening"), "the listener reaches the end");
            for (int number = 0; number < 3; number++) {
                World.equal(reader.readNext(20, TimeUnit.SECONDS).getValue(), "m" + number, "message");
            }
            World.until(reader::hasReachedEndOfTopic, "the reader reaches the end");
            World.check(consumer.isConnected() && reader.isConnected(), "a connection broke");
        }
        try (Consumer<String> late = world.subscribing(topic, SubscriptionType.Failover).subscriptionName("late")
                .subscribe()) {
            World.take(late, 3);
            World.until(late::hasReachedEndOfTopic, "a late consumer reaches the end");
        }
    }
}

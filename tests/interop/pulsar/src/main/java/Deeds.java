import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.BatchReceivePolicy;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TableView;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.client.api.transaction.TxnID;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

/** What a client does in one line of the calls: the section {@code client}. Nothing stays open but after `attach` and `open`. */
public final class Deeds implements AutoCloseable {
    private static final int ARRIVES_S = 20;
    private final PulsarClient client;
    private final List<AutoCloseable> attached = new ArrayList<>();
    private Transaction open;

    /** A value with a schema. */
    public static class Order {
        public String name;
        public int count;
    }

    /** The same with a field of another type. */
    public static class Misfit {
        public int name;
        public String other;
    }

    Deeds(PulsarClient client) {
        this.client = client;
    }

    @Override
    public void close() throws Exception {
        detach();
        client.close();
    }

    public long now() {
        return System.currentTimeMillis();
    }

    private ProducerBuilder<byte[]> producing(String topic) {
        return client.newProducer().topic(topic).producerName("driver").enableBatching(false);
    }

    /** Send so many messages with keys and properties. */
    public List<MessageId> produce(String topic, int count) throws Exception {
        List<MessageId> ids = new ArrayList<>();
        try (Producer<byte[]> producer = producing(topic).create()) {
            for (int number = 0; number < count; number++) {
                ids.add(producer.newMessage().key("key " + number % 3).property("number", String.valueOf(number))
                    .value(("message " + number).getBytes()).send());
            }
        }
        return ids;
    }

    /** Send so many messages in one batch. */
    public List<MessageId> batch(String topic, int count) throws Exception {
        try (Producer<String> producer = client.newProducer(Schema.STRING).topic(topic).producerName("driver")
            .batchingMaxPublishDelay(1, TimeUnit.HOURS).create()) {
            return World.send(producer, World.numbered("batched ", 0, count));
        }
    }

    public MessageId delay(String topic, long milliseconds) throws Exception {
        try (Producer<byte[]> producer = producing(topic).create()) {
            return producer.newMessage().value("delayed".getBytes()).deliverAfter(milliseconds, TimeUnit.MILLISECONDS).send();
        }
    }

    /** Send a value of so many bytes in chunks, and receive it. */
    public Map<String, Object> chunk(String topic, int bytes) throws Exception {
        try (Consumer<byte[]> consumer = subscribing(topic, "chunks").subscribe();
             Producer<byte[]> producer = producing(topic).enableChunking(true).chunkMaxMessageSize(bytes / 3).create()) {
            producer.send(new byte[bytes]);
            Message<byte[]> message = World.next(consumer);
            consumer.acknowledge(message);
            return Map.of("bytes", message.getData().length, "id", message.getMessageId().getClass().getSimpleName());
        }
    }

    private ConsumerBuilder<byte[]> subscribing(String topic, String subscription) {
        return client.newConsumer().topic(topic).subscriptionName(subscription).consumerName("driver")
            .isAckReceiptEnabled(true).subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
    }

    private static List<String> taken(Consumer<byte[]> consumer, int count) throws Exception {
        return World.take(consumer, count).stream().map(String::new).toList();
    }

    public List<String> consume(String topic, String subscription, int count) throws Exception {
        try (Consumer<byte[]> consumer = subscribing(topic, subscription).subscribe()) {
            return taken(consumer, count);
        }
    }

    public List<String> consume(String topic, String subscription, int count, SubscriptionType type) throws Exception {
        try (Consumer<byte[]> consumer = subscribing(topic, subscription).subscriptionType(type).subscribe()) {
            List<String> found = new ArrayList<>(taken(consumer, count));
            found.sort(null);
            return found;
        }
    }

    public List<String> cumulative(String topic, String subscription, int count) throws Exception {
        try (Consumer<byte[]> consumer = subscribing(topic, subscription).subscribe()) {
            List<String> found = new ArrayList<>();
            Message<byte[]> last = null;
            for (int number = 0; number < count; number++) {
                last = World.next(consumer);
                found.add(new String(last.getData()));
            }
            consumer.acknowledgeCumulative(last);
            return found;
        }
    }

    /** Receive so many messages, acknowledge each second one, and return those that come again to the next consumer. */
    public List<String> odd(String topic, String subscription, int count) throws Exception {
        ConsumerBuilder<byte[]> builder = subscribing(topic, subscription).subscriptionType(SubscriptionType.Shared)
            .enableBatchIndexAcknowledgment(true);
        try (Consumer<byte[]> consumer = builder.subscribe()) {
            for (int number = 0; number < count; number++) {
                Message<byte[]> message = World.next(consumer);
                if (number % 2 == 0) {
                    consumer.acknowledge(message);
                }
            }
        }
        try (Consumer<byte[]> consumer = builder.subscribe()) {
            List<String> found = new ArrayList<>(taken(consumer, count / 2));
            World.silent(consumer);
            found.sort(null);
            return found;
        }
    }

    /** Return the counts with which a message comes that is refused. */
    public List<Integer> refuse(String topic, String subscription, int times) throws Exception {
        try (Consumer<byte[]> consumer = subscribing(topic, subscription).subscriptionType(SubscriptionType.Shared)
            .negativeAckRedeliveryDelay(1, TimeUnit.MILLISECONDS).subscribe()) {
            List<Integer> counts = new ArrayList<>();
            for (int number = 0; number <= times; number++) {
                Message<byte[]> message = World.next(consumer);
                counts.add(message.getRedeliveryCount());
                if (number < times) {
                    consumer.negativeAcknowledge(message);
                } else {
                    consumer.acknowledge(message);
                }
            }
            return counts;
        }
    }

    public int together(String topic, String subscription, int count) throws Exception {
        try (Consumer<byte[]> consumer = subscribing(topic, subscription).batchReceivePolicy(BatchReceivePolicy.builder()
            .maxNumMessages(count).timeout(ARRIVES_S, TimeUnit.SECONDS).build()).subscribe()) {
            var found = consumer.batchReceive();
            consumer.acknowledge(found);
            return found.size();
        }
    }

    public List<String> several(List<String> topics, String subscription, int count) throws Exception {
        return sorted(client.newConsumer().topics(topics), subscription, count);
    }

    public List<String> pattern(String pattern, String subscription, int count) throws Exception {
        return sorted(client.newConsumer().topicsPattern(Pattern.compile(pattern)), subscription, count);
    }

    private static List<String> sorted(ConsumerBuilder<byte[]> builder, String subscription, int count) throws Exception {
        try (Consumer<byte[]> consumer = builder.subscriptionName(subscription).isAckReceiptEnabled(true)
            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
            List<String> found = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                Message<byte[]> message = World.next(consumer);
                consumer.acknowledge(message);
                found.add(message.getTopicName() + " " + new String(message.getData()));
            }
            found.sort(null);
            return found;
        }
    }

    /** Move a subscription, and return so many messages from there on. */
    public List<String> seek(String topic, String subscription, MessageId to, int count) throws Exception {
        try (Consumer<byte[]> consumer = subscribing(topic, subscription).subscribe()) {
            consumer.seek(to);
            return taken(consumer, count);
        }
    }

    public List<String> seekTime(String topic, String subscription, long milliseconds, int count) throws Exception {
        try (Consumer<byte[]> consumer = subscribing(topic, subscription).subscribe()) {
            consumer.seek(milliseconds);
            return taken(consumer, count);
        }
    }

    public List<String> read(String topic, MessageId from, boolean inclusive, int count) throws Exception {
        var builder = client.newReader().topic(topic).startMessageId(from);
        try (Reader<byte[]> reader = (inclusive ? builder.startMessageIdInclusive() : builder).create()) {
            List<String> found = new ArrayList<>();
            while (found.size() < count && reader.hasMessageAvailable()) {
                found.add(new String(reader.readNext(ARRIVES_S, TimeUnit.SECONDS).getData()));
            }
            return found;
        }
    }

    /** Return the values of a compacted topic by key. */
    public Map<String, String> compacted(String topic) throws Exception {
        try (Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(MessageId.earliest).readCompacted(true)
            .create()) {
            Map<String, String> found = new TreeMap<>();
            while (reader.hasMessageAvailable()) {
                Message<byte[]> message = reader.readNext(ARRIVES_S, TimeUnit.SECONDS);
                found.put(message.getKey(), new String(message.getData()));
            }
            return found;
        }
    }

    public Map<String, String> table(String topic) throws Exception {
        try (TableView<byte[]> view = client.newTableView().topic(topic).create()) {
            Map<String, String> found = new TreeMap<>();
            view.forEach((key, value) -> found.put(key, new String(value)));
            return found;
        }
    }

    public List<String> partitions(String topic) throws Exception {
        return client.getPartitionsForTopic(topic).get(ARRIVES_S, TimeUnit.SECONDS);
    }

    public List<Object> last(String topic) throws Exception {
        try (Consumer<byte[]> consumer = subscribing(topic, "last").subscribe()) {
            return new ArrayList<>(consumer.getLastMessageIds());
        } finally {
            try (Consumer<byte[]> consumer = subscribing(topic, "last").subscribe()) {
                consumer.unsubscribe();
            }
        }
    }

    /** Send a value with its schema, and return it as a consumer without the class reads it. */
    public Map<String, Object> typed(String topic, String kind) throws Exception {
        Schema<Order> schema = kind.equals("avro") ? Schema.AVRO(Order.class) : Schema.JSON(Order.class);
        try (Consumer<GenericRecord> consumer = client.newConsumer(Schema.AUTO_CONSUME()).topic(topic)
            .subscriptionName("typed").isAckReceiptEnabled(true).subscribe();
             Producer<Order> producer = client.newProducer(schema).topic(topic).create()) {
            Order order = new Order();
            order.name = "pens";
            order.count = 12;
            producer.send(order);
            Message<GenericRecord> message = World.next(consumer);
            consumer.acknowledge(message);
            Map<String, Object> found = new LinkedHashMap<>();
            message.getValue().getFields().forEach(field ->
                found.put(field.getName(), String.valueOf(message.getValue().getField(field))));
            found.put("version", Arrays.toString(message.getSchemaVersion()));
            return found;
        }
    }

    public String misfit(String topic) throws Exception {
        try (Producer<Misfit> producer = client.newProducer(Schema.AVRO(Misfit.class)).topic(topic).create()) {
            return producer.getTopic();
        }
    }

    public String pair(String topic) throws Exception {
        var schema = Schema.KeyValue(Schema.STRING, Schema.INT32, KeyValueEncodingType.SEPARATED);
        try (Consumer<KeyValue<String, Integer>> consumer = client.newConsumer(schema).topic(topic)
            .subscriptionName("pairs").subscribe();
             Producer<KeyValue<String, Integer>> producer = client.newProducer(schema).topic(topic).create()) {
            producer.send(new KeyValue<>("one", 1));
            Message<KeyValue<String, Integer>> message = World.next(consumer);
            consumer.acknowledge(message);
            return message.getKey() + " " + message.getValue();
        }
    }

    /** Move so many messages in a transaction, and end it. */
    public String move(String from, String subscription, String to, int count, boolean commits) throws Exception {
        Transaction transaction = client.newTransaction().withTransactionTimeout(1, TimeUnit.MINUTES).build().get();
        try (Consumer<byte[]> consumer = subscribing(from, subscription).subscribe();
             Producer<byte[]> producer = producing(to).sendTimeout(0, TimeUnit.SECONDS).create()) {
            for (int number = 0; number < count; number++) {
                Message<byte[]> message = World.next(consumer);
                producer.newMessage(transaction).value(message.getData()).send();
                consumer.acknowledgeAsync(message.getMessageId(), transaction).get();
            }
            (commits ? transaction.commit() : transaction.abort()).get();
        }
        return transaction.getState().name();
    }

    /** Leave a transaction open that has produced and acknowledged. */
    public TxnID open(String from, String subscription, String to) throws Exception {
        open = client.newTransaction().withTransactionTimeout(10, TimeUnit.MINUTES).build().get();
        Consumer<byte[]> consumer = subscribing(from, subscription).subscribe();
        attached.add(consumer);
        Producer<byte[]> producer = producing(to).sendTimeout(0, TimeUnit.SECONDS).create();
        attached.add(producer);
        producer.newMessage(open).value("open".getBytes()).send();
        consumer.acknowledgeAsync(World.next(consumer).getMessageId(), open).get();
        return open.getTxnID();
    }

    public String commit() throws Exception {
        open.commit().get();
        return open.getState().name();
    }

    /** Open a producer and a consumer until `detach`. Both have sent or received a message. */
    public String attach(String topic, String subscription, SubscriptionType type) throws Exception {
        Consumer<byte[]> consumer = subscribing(topic, subscription).subscriptionType(type).property("p", "c").subscribe();
        attached.add(consumer);
        Producer<byte[]> producer = producing(topic).property("p", "p").create();
        attached.add(producer);
        producer.send("attached".getBytes());
        Message<byte[]> message = World.next(consumer);
        consumer.acknowledge(message);
        return new String(message.getData());
    }

    public void detach() throws Exception {
        while (!attached.isEmpty()) {
            attached.remove(attached.size() - 1).close();
        }
    }

    /** Open a producer beside whatever is attached. */
    public String beside(String topic, ProducerAccessMode mode) throws Exception {
        try (Producer<byte[]> producer = client.newProducer().topic(topic).accessMode(mode).create()) {
            return String.valueOf(producer.isConnected());
        }
    }

    public boolean unsubscribe(String topic, String subscription) throws Exception {
        try (Consumer<byte[]> consumer = subscribing(topic, subscription).subscribe()) {
            consumer.unsubscribe();
            return consumer.isConnected();
        }
    }

    /** Return the keys that each of two consumers got: none has a part of another's. */
    public boolean keysStayTogether(String topic, String subscription, int count) throws Exception {
        ConsumerBuilder<byte[]> builder = subscribing(topic, subscription).subscriptionType(SubscriptionType.Key_Shared);
        try (Consumer<byte[]> one = builder.clone().consumerName("one").subscribe();
             Consumer<byte[]> other = builder.clone().consumerName("other").subscribe()) {
            produce(topic, count);
            Set<String> ones = new HashSet<>();
            Set<String> others = new HashSet<>();
            for (int left = count; left > 0;) {
                for (var each : List.of(one, other)) {
                    Message<byte[]> message = each.receive(100, TimeUnit.MILLISECONDS);
                    if (message != null) {
                        (each == one ? ones : others).add(message.getKey());
                        each.acknowledge(message);
                        left--;
                    }
                }
            }
            ones.retainAll(others);
            return ones.isEmpty();
        }
    }
}

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.transaction.Transaction;

/** Transactions by Pulsar's own client: prints one line for each story, and fails with an exception. */
public final class Transactions {
    private final PulsarClient client;

    private Transactions(String url) throws Exception {
        client = PulsarClient.builder().serviceUrl(url).enableTransaction(true).build();
    }

    public static void main(String[] arguments) throws Exception {
        Transactions stories = new Transactions(arguments[0]);
        String prefix = arguments[1];
        if (arguments.length > 2 && arguments[2].equals("leave")) {
            stories.leave(prefix + "-left");
        } else if (arguments.length > 2 && arguments[2].equals("find")) {
            stories.find(prefix + "-left");
        } else {
            for (boolean batched : new boolean[] {false, true}) {
                for (SubscriptionType type : SubscriptionType.values()) {
                    String topic = prefix + "-" + type + "-" + batched;
                    stories.produce(topic + "-produce", type, batched);
                    stories.acknowledge(topic + "-ack", type, batched);
                    stories.consumeAndProduce(topic + "-in", topic + "-out", type, batched);
                }
            }
            stories.timeOut(prefix + "-late");
            stories.manyTopics(prefix + "-many");
            stories.read(prefix + "-read");
        }
        stories.client.close();
        System.out.println("all stories hold");
    }

    private Transaction begin() throws Exception {
        return client.newTransaction().withTransactionTimeout(30, TimeUnit.SECONDS).build().get();
    }

    private Producer<String> producer(String topic, boolean batched) throws Exception {
        return client.newProducer(Schema.STRING).topic(topic).enableBatching(batched)
            .batchingMaxPublishDelay(5, TimeUnit.MILLISECONDS).sendTimeout(0, TimeUnit.SECONDS).create();
    }

    private Consumer<String> consumer(String topic, SubscriptionType type) throws Exception {
        return client.newConsumer(Schema.STRING).topic(topic).subscriptionName("s").subscriptionType(type)
            .enableBatchIndexAcknowledgment(true)
            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException(what);
        }
    }

    private static List<String> receive(Consumer<String> consumer, int count) throws Exception {
        List<String> found = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            Message<String> message = consumer.receive(20, TimeUnit.SECONDS);
            check(message != null, "only " + found + " of " + count + " came");
            found.add(message.getValue());
            consumer.acknowledge(message);
        }
        return found;
    }

    private static void silent(Consumer<String> consumer) throws Exception {
        Message<String> message = consumer.receive(700, TimeUnit.MILLISECONDS);
        check(message == null, "unexpected " + (message == null ? "" : message.getValue()));
    }

    private void produce(String topic, SubscriptionType type, boolean batched) throws Exception {
        try (Producer<String> producer = producer(topic, batched); Consumer<String> consumer = consumer(topic, type)) {
            Transaction committed = begin();
            Transaction aborted = begin();
            for (int number = 0; number < 20; number++) {
                producer.newMessage(committed).value("c" + number).sendAsync();
                producer.newMessage(aborted).value("a" + number).sendAsync();
            }
            producer.flush();
            silent(consumer);
            aborted.abort().get();
            silent(consumer);
            committed.commit().get();
            List<String> found = receive(consumer, 20);
            for (int number = 0; number < 20; number++) {
                check(found.contains("c" + number), "c" + number + " is missing in " + found);
            }
            silent(consumer);
        }
        System.out.println("produced " + topic);
    }

    private void acknowledge(String topic, SubscriptionType type, boolean batched) throws Exception {
        try (Producer<String> producer = producer(topic, batched)) {
            for (int number = 0; number < 10; number++) {
                producer.newMessage().value("m" + number).sendAsync();
            }
            producer.flush();
        }
        Consumer<String> consumer = consumer(topic, type);
        Transaction aborted = begin();
        for (int number = 0; number < 10; number++) {
            Message<String> message = consumer.receive(20, TimeUnit.SECONDS);
            check(message != null, "message " + number + " did not come");
            consumer.acknowledgeAsync(message.getMessageId(), aborted).get();
        }
        aborted.abort().get();
        consumer.close();
        consumer = consumer(topic, type);
        Transaction committed = begin();
        for (int number = 0; number < 10; number++) {
            Message<String> message = consumer.receive(20, TimeUnit.SECONDS);
            check(message != null, "message " + number + " did not come again");
            consumer.acknowledgeAsync(message.getMessageId(), committed).get();
        }
        committed.commit().get();
        consumer.close();
        consumer = consumer(topic, type);
        silent(consumer);
        consumer.close();
        System.out.println("acknowledged " + topic);
    }

    private void consumeAndProduce(String in, String out, SubscriptionType type, boolean batched) throws Exception {
        try (Producer<String> feeder = producer(in, batched); Producer<String> producer = producer(out, batched);
                Consumer<String> consumer = consumer(in, type); Consumer<String> last = consumer(out, type)) {
            for (int number = 0; number < 30; number++) {
                feeder.newMessage().key("k" + number).value("m" + number).sendAsync();
            }
            feeder.flush();
            for (int group = 0; group < 3; group++) {
                Transaction txn = begin();
                for (int number = 0; number < 10; number++) {
                    Message<String> message = consumer.receive(20, TimeUnit.SECONDS);
                    check(message != null, "message " + group + number + " did not come");
                    producer.newMessage(txn).value(message.getValue() + "!").sendAsync();
                    consumer.acknowledgeAsync(message.getMessageId(), txn).get();
                }
                txn.commit().get();
            }
            check(receive(last, 30).size() == 30, "results are missing");
            silent(last);
            silent(consumer);
        }
        System.out.println("consumed and produced " + in);
    }

    private void timeOut(String topic) throws Exception {
        try (Producer<String> producer = producer(topic, false);
                Consumer<String> consumer = consumer(topic, SubscriptionType.Exclusive)) {
            Transaction late = client.newTransaction().withTransactionTimeout(2, TimeUnit.SECONDS).build().get();
            producer.newMessage(late).value("late").send();
            producer.newMessage().value("plain").send();
            check(receive(consumer, 1).get(0).equals("plain"), "the late message came");
            boolean refused = false;
            try {
                late.commit().get();
            } catch (Exception expected) {
                refused = true;
            }
            check(refused, "a transaction was committed after its time");
        }
        System.out.println("timed out");
    }

    private void manyTopics(String prefix) throws Exception {
        List<Producer<String>> producers = new ArrayList<>();
        List<Consumer<String>> consumers = new ArrayList<>();
        for (int number = 0; number < 8; number++) {
            producers.add(producer(prefix + number, false));
            consumers.add(consumer(prefix + number, SubscriptionType.Exclusive));
        }
        for (boolean commit : new boolean[] {true, false, true}) {
            Transaction txn = begin();
            for (Producer<String> producer : producers) {
                producer.newMessage(txn).value("m").send();
            }
            (commit ? txn.commit() : txn.abort()).get();
            for (Consumer<String> consumer : consumers) {
                if (commit) {
                    receive(consumer, 1);
                }
            }
        }
        for (Consumer<String> consumer : consumers) {
            silent(consumer);
            consumer.close();
        }
        for (Producer<String> producer : producers) {
            producer.close();
        }
        System.out.println("many topics");
    }

    private void read(String topic) throws Exception {
        try (Producer<String> producer = producer(topic, false)) {
            producer.newMessage().value("plain").send();
            Transaction aborted = begin();
            Transaction open = begin();
            for (int number = 0; number < 150; number++) {
                producer.newMessage(aborted).value("a" + number).sendAsync();
            }
            producer.flush();
            aborted.abort().get();
            producer.newMessage(open).value("open").send();
            try (Reader<String> reader = client.newReader(Schema.STRING).topic(topic)
                    .startMessageId(MessageId.earliest).create()) {
                List<String> found = new ArrayList<>();
                while (reader.hasMessageAvailable()) {
                    Message<String> message = reader.readNext(5, TimeUnit.SECONDS);
                    check(message != null, "hasMessageAvailable, and nothing came after " + found);
                    found.add(message.getValue());
                }
                check(found.equals(List.of("plain")), "read " + found);
                open.commit().get();
                Message<String> last = reader.readNext(20, TimeUnit.SECONDS);
                check(last != null && last.getValue().equals("open"), "the committed message was not read");
            }
        }
        System.out.println("read");
    }

    /** Leave behind what a kill is to find: a committed, an aborted and an open transaction, and held messages. */
    private void leave(String topic) throws Exception {
        Producer<String> producer = producer(topic, false);
        Consumer<String> consumer = consumer(topic + "-acks", SubscriptionType.Shared);
        Producer<String> feeder = producer(topic + "-acks", false);
        Transaction committed = begin();
        Transaction aborted = begin();
        Transaction open = client.newTransaction().withTransactionTimeout(15, TimeUnit.SECONDS).build().get();
        producer.newMessage(committed).value("committed").send();
        producer.newMessage(aborted).value("aborted").send();
        producer.newMessage(open).value("open").send();
        producer.newMessage().value("plain").send();
        for (String value : List.of("x", "y")) {
            feeder.newMessage().value(value).send();
        }
        Message<String> first = consumer.receive(20, TimeUnit.SECONDS);
        Message<String> second = consumer.receive(20, TimeUnit.SECONDS);
        consumer.acknowledgeAsync(first.getMessageId(), committed).get();
        consumer.acknowledgeAsync(second.getMessageId(), open).get();
        committed.commit().get();
        aborted.abort().get();
        System.out.println("left");
    }

    private void find(String topic) throws Exception {
        try (Consumer<String> consumer = consumer(topic, SubscriptionType.Exclusive);
                Consumer<String> acks = consumer(topic + "-acks", SubscriptionType.Shared)) {
            check(receive(consumer, 2).equals(List.of("committed", "plain")), "not what was committed");
            check(receive(acks, 1).equals(List.of("y")), "not what the open transaction acknowledged");
            silent(consumer);
            silent(acks);
        }
        System.out.println("found");
    }
}

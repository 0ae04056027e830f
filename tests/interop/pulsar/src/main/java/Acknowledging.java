import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.SubscriptionType;

/** Acknowledgements inside of batches, redelivery, and the topics of dead and of retried letters. */
final class Acknowledging {
    private Acknowledging() {
    }

    static void batchIndexes(World world, String prefix) throws Exception {
        for (SubscriptionType type : SubscriptionType.values()) {
            String topic = prefix + "-" + type;
            List<String> values = World.numbered("m", 0, 10);
            try (Producer<String> producer = world.producer(topic, true)) {
                World.send(producer, values);
            }
            ConsumerBuilder<String> subscribing = world.subscribing(topic, type)
                .enableBatchIndexAcknowledgment(true).isAckReceiptEnabled(true)
                .acknowledgmentGroupTime(0, TimeUnit.SECONDS);
            List<String> left = new ArrayList<>(values);
            try (Consumer<String> consumer = subscribing.subscribe()) {
                for (int number = 0; number < 10; number++) {
                    Message<String> message = World.next(consumer);
                    if (number % 3 == 0) {
                        consumer.acknowledge(message);
                        left.remove(message.getValue());
                    }
                }
            }
            try (Consumer<String> consumer = subscribing.subscribe()) {
                List<Message<String>> found = new ArrayList<>();
                for (int number = 0; number < left.size(); number++) {
                    found.add(World.next(consumer));
                }
                World.equal(found.stream().map(Message::getValue).toList(), left, "left by " + type);
                World.silent(consumer);
                if (type == SubscriptionType.Exclusive || type == SubscriptionType.Failover) {
                    consumer.acknowledgeCumulative(found.get(3));
                    left = left.subList(4, left.size());
                }
            }
            try (Consumer<String> consumer = subscribing.subscribe()) {
                World.equal(World.take(consumer, left.size()), left, "left in the end by " + type);
                World.silent(consumer);
            }
            try (Consumer<String> consumer = subscribing.subscribe()) {
                World.silent(consumer);
            }
        }
    }

    /** Negative acknowledgements count up to the dead letter topic; a message without an answer comes again too. */
    static void redelivery(World world, String topic) throws Exception {
        String dead = topic + "-dead";
        ConsumerBuilder<String> subscribing = world.subscribing(topic, SubscriptionType.Shared)
            .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS)
            .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(3).deadLetterTopic(dead)
                .initialSubscriptionName("undertaker").build());
        try (Producer<String> producer = world.producer(topic); Consumer<String> first = subscribing.subscribe()) {
            producer.newMessage().key("k").property("p", "q").value("bad").send();
            producer.send("good");
            for (int count = 0; count < 3; count++) {
                Message<String> message = World.next(first);
                while (message.getValue().equals("good")) {
                    first.acknowledge(message);
                    message = World.next(first);
                }
                World.equal(message.getRedeliveryCount(), count, "redeliveries");
                if (count < 2) {
                    first.negativeAcknowledge(message);
                }
            }
            // The first consumer holds the message when it closes. That is a redelivery too.
            try (Consumer<String> second = subscribing.subscribe()) {
                first.close();
                Message<String> message = World.next(second);
                World.equal(message.getRedeliveryCount(), 3, "redeliveries at another consumer");
                second.negativeAcknowledge(message);
                World.silent(second);
                try (Consumer<String> undertaker = world.subscribing(dead, SubscriptionType.Exclusive)
                        .subscriptionName("undertaker").subscribe()) {
                    Message<String> letter = World.next(undertaker);
                    World.equal(letter.getValue() + letter.getKey() + letter.getProperty("p"), "badkq", "dead letter");
                    World.silent(undertaker);
                }
                World.silent(second);
            }
        }
        try (Producer<String> producer = world.producer(topic + "-late"); Consumer<String> consumer =
                world.subscribing(topic + "-late", SubscriptionType.Shared).ackTimeout(1, TimeUnit.SECONDS)
                    .subscribe()) {
            producer.send("slow");
            World.equal(World.next(consumer).getRedeliveryCount(), 0, "redeliveries");
            Message<String> again = World.next(consumer);
            World.equal(again.getRedeliveryCount(), 1, "redeliveries after the time-out");
            consumer.acknowledge(again);
        }
    }

    static void retryLetters(World world, String topic) throws Exception {
        try (Producer<String> producer = world.producer(topic); Consumer<String> consumer = world
                .subscribing(topic, SubscriptionType.Shared).enableRetry(true)
                .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2).build()).subscribe();
                Consumer<String> dead = world.subscribing(topic + "-s-DLQ", SubscriptionType.Shared).subscribe()) {
            producer.send("later");
            for (int count = 0; count < 3; count++) {
                Message<String> message = World.next(consumer);
                World.equal(message.getValue(), "later", "message");
                World.equal(message.getProperties().getOrDefault("RECONSUMETIMES", "0"), "" + count, "times");
                consumer.reconsumeLater(message, 300, TimeUnit.MILLISECONDS);
            }
            World.equal(World.take(dead, 1), List.of("later"), "dead letters");
            World.silent(consumer);
        }
    }
}

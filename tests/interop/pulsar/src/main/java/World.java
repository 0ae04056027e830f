import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/** A server, Pulsar's client of it, its REST, and the expectations of stories. */
final class World implements AutoCloseable {
    static final String NAMESPACE = "persistent://public/default/";
    private static final int ARRIVES_S = 20;
    private static final int SILENT_MS = 700;
    final PulsarClient client;
    private final String web;
    private final HttpClient rest;
    private final String credentials;

    World(String url, String web) throws Exception {
        this.client = PulsarClient.builder().serviceUrl(url).operationTimeout(20, TimeUnit.SECONDS).build();
        this.web = web;
        this.rest = HttpClient.newBuilder().followRedirects(HttpClient.Redirect.ALWAYS).build();
        this.credentials = "";
    }

    /** A server with TLS, of which an administrator with a token is the client. */
    World(Roles roles) throws Exception {
        this.client = roles.client("admin");
        this.web = roles.web();
        this.rest = HttpClient.newBuilder().followRedirects(HttpClient.Redirect.ALWAYS).sslContext(roles.trust()).build();
        this.credentials = "Bearer " + roles.token("admin");
    }

    @Override
    public void close() throws Exception {
        client.close();
    }

    /** Call {@code /admin/v2} and the path; return the answer, whose status must be a success. */
    String rest(String method, String path, String body) throws Exception {
        HttpResponse<String> answer = answer(method, path, body);
        check(answer.statusCode() < 300, method + " " + path + ": " + answer.statusCode() + " " + answer.body());
        return answer.body();
    }

    HttpResponse<String> answer(String method, String path, String body) throws Exception {
        HttpRequest.Builder builder = HttpRequest.newBuilder(URI.create(web + "/admin/v2" + path));
        HttpRequest request = (credentials.isEmpty() ? builder : builder.header("Authorization", credentials))
            .header("Content-Type", "application/json")
            .method(method, body.isEmpty() ? HttpRequest.BodyPublishers.noBody()
                : HttpRequest.BodyPublishers.ofString(body))
            .build();
        return rest.send(request, HttpResponse.BodyHandlers.ofString());
    }

    /** Return the path of a topic's REST. */
    static String path(String topic) {
        String local = topic.substring(NAMESPACE.length());
        return "/persistent/public/default/" + URLEncoder.encode(local, StandardCharsets.UTF_8);
    }

    Producer<String> producer(String topic) throws Exception {
        return producer(topic, false);
    }

    /** Open a producer of texts. A batching one sends a batch at each flush. */
    Producer<String> producer(String topic, boolean batched) throws Exception {
        return client.newProducer(Schema.STRING).topic(topic).enableBatching(batched)
            .batchingMaxPublishDelay(1, TimeUnit.HOURS).create();
    }

    ConsumerBuilder<String> subscribing(String topic, SubscriptionType type) {
        return client.newConsumer(Schema.STRING).topic(topic).subscriptionName("s").subscriptionType(type)
            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
    }

    /** Send these values in their order, as one batch if the producer makes batches. Return their ids. */
    static List<MessageId> send(Producer<String> producer, List<String> values) throws Exception {
        var sent = values.stream().map(producer::sendAsync).toList();
        producer.flush();
        List<MessageId> ids = new ArrayList<>();
        for (var each : sent) {
            ids.add(each.get());
        }
        return ids;
    }

    static List<String> numbered(String prefix, int from, int to) {
        List<String> made = new ArrayList<>();
        for (int number = from; number < to; number++) {
            made.add(prefix + number);
        }
        return made;
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException(what);
        }
    }

    static void equal(Object found, Object expected, String what) {
        check(expected.equals(found), what + ": " + found + " instead of " + expected);
    }

    static <T> Message<T> next(Consumer<T> consumer) throws Exception {
        Message<T> message = consumer.receive(ARRIVES_S, TimeUnit.SECONDS);
        check(message != null, "nothing came on " + consumer.getTopic());
        return message;
    }

    /** Receive so many messages, and acknowledge them. Return their values. */
    static <T> List<T> take(Consumer<T> consumer, int count) throws Exception {
        List<T> found = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            Message<T> message = consumer.receive(ARRIVES_S, TimeUnit.SECONDS);
            check(message != null, "only " + found + " of " + count + " came on " + consumer.getTopic());
            found.add(message.getValue());
            consumer.acknowledge(message);
        }
        return found;
    }

    static void silent(Consumer<?> consumer) throws Exception {
        Message<?> message = consumer.receive(SILENT_MS, TimeUnit.MILLISECONDS);
        check(message == null, "unexpected " + (message == null ? "" : message.getValue()));
    }

    /** Wait until the condition holds. */
    static void until(Callable<Boolean> condition, String what) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(ARRIVES_S);
        while (!condition.call()) {
            check(System.nanoTime() < deadline, "never: " + what);
            Thread.sleep(20);
        }
    }

    /** Check that the call fails with this exception. */
    static void refused(Class<? extends Exception> expected, Callable<?> call) {
        Object made;
        try {
            made = call.call();
        } catch (Exception error) {
            Throwable found = error;
            while (found != null && !expected.isInstance(found)) {
                found = found.getCause();
            }
            check(found != null, "not " + expected.getSimpleName() + " but " + error);
            return;
        }
        throw new IllegalStateException(made + " instead of " + expected.getSimpleName());
    }
}

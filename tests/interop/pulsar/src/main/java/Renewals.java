import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.Authentication;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;

/**
 * Clients whose credentials are renewed. {@code Renewals SETTINGS tokens FILE COUNT}: they show the token in a file, which
 * is replaced, until the producer was asked for it so often. {@code Renewals SETTINGS certificates ROLE}: they print `sent`
 * and wait for a line, before which their files and the server's are replaced; then the connection breaks.
 */
public final class Renewals {
    private static final String TOPIC = "persistent://public/default/renewed";
    private static final int LONGEST_MS = 60_000;

    private Renewals() {
    }

    public static void main(String[] arguments) throws Exception {
        try (Roles roles = Roles.of(arguments[0])) {
            if (arguments[1].equals("tokens")) {
                tokens(roles, Path.of(arguments[2]), Integer.parseInt(arguments[3]));
            } else {
                certificates(roles, arguments[2]);
            }
        }
        System.exit(0);
    }

    private static Authentication counting(Path file, AtomicInteger asked) {
        return AuthenticationFactory.token(() -> {
            asked.incrementAndGet();
            try {
                return Files.readString(file);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        });
    }

    private static void tokens(Roles roles, Path file, int count) throws Exception {
        AtomicInteger asked = new AtomicInteger();
        try (PulsarClient client = roles.client(counting(file, asked));
             PulsarAdmin admin = roles.admin(counting(file, new AtomicInteger()));
             Producer<byte[]> producer = client.newProducer().topic(TOPIC).create()) {
            producer.send("first".getBytes());
            String before = peer(admin);
            long deadline = System.currentTimeMillis() + LONGEST_MS;
            while (asked.get() < count) {
                World.check(System.currentTimeMillis() < deadline, "asked only " + asked.get() + " times");
                producer.send("next".getBytes());
                World.equal(peer(admin), before, "the connection");
                Thread.sleep(20);
            }
        }
        System.out.println("kept");
    }

    private static String peer(PulsarAdmin admin) throws Exception {
        var publisher = admin.topics().getStats(TOPIC).getPublishers().get(0);
        return publisher.getAddress() + " since " + publisher.getConnectedSince();
    }

    private static void certificates(Roles roles, String role) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        try (PulsarClient client = roles.client(role);
             Producer<byte[]> producer = client.newProducer().topic(TOPIC).create()) {
            while (true) {
                producer.send("text".getBytes());
                System.out.println("sent " + peer(roles.admin(role)));
                if (lines.readLine() == null) {
                    return;
                }
                cut(producer);
            }
        }
    }

    /** Close the connection of a producer, as a network does. */
    private static void cut(Producer<byte[]> producer) throws Exception {
        Object connection = call(producer, "getClientCnx");
        call(call(call(connection, "ctx"), "channel"), "close");
        World.until(() -> call(producer, "getClientCnx") != connection, "another connection");
    }

    private static Object call(Object target, String name) throws Exception {
        for (Class<?> each = target.getClass(); each != null; each = each.getSuperclass()) {
            for (Method method : each.getDeclaredMethods()) {
                if (method.getName().equals(name) && method.getParameterCount() == 0 && !method.isBridge()) {
                    method.setAccessible(true);
                    return method.invoke(target);
                }
            }
        }
        throw new NoSuchMethodException(name);
    }
}

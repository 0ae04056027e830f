import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.Authentication;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.PulsarClient;

/**
 * Clients of a server by role. Settings: {@code url}, {@code web}, {@code trust} (a file of certificates), and for each role
 * {@code role.NAME}, a class of authentication and its parameters. A role without a class shows no credentials.
 */
final class Roles implements AutoCloseable {
    private static final int PATIENCE_S = 30;
    private final Properties settings;
    private final Map<String, PulsarAdmin> admins = new HashMap<>();
    private final Map<String, Deeds> clients = new HashMap<>();

    Roles(Properties settings) {
        this.settings = settings;
    }

    PulsarAdmin admin(String role) throws Exception {
        PulsarAdmin found = admins.get(role);
        if (found == null) {
            var builder = PulsarAdmin.builder().serviceHttpUrl(settings.getProperty("web"))
                .tlsTrustCertsFilePath(settings.getProperty("trust")).enableTlsHostnameVerification(true)
                .requestTimeout(PATIENCE_S, TimeUnit.SECONDS).readTimeout(PATIENCE_S, TimeUnit.SECONDS);
            Authentication authentication = authentication(role);
            found = (authentication == null ? builder : builder.authentication(authentication)).build();
            admins.put(role, found);
        }
        return found;
    }

    Deeds deeds(String role) throws Exception {
        Deeds found = clients.get(role);
        if (found == null) {
            found = new Deeds(client(role));
            clients.put(role, found);
        }
        return found;
    }

    PulsarClient client(String role) throws Exception {
        var builder = PulsarClient.builder().serviceUrl(settings.getProperty("url")).enableTransaction(role.equals("admin"))
            .tlsTrustCertsFilePath(settings.getProperty("trust")).enableTlsHostnameVerification(true)
            .operationTimeout(PATIENCE_S, TimeUnit.SECONDS).connectionTimeout(PATIENCE_S, TimeUnit.SECONDS);
        Authentication authentication = authentication(role);
        return (authentication == null ? builder : builder.authentication(authentication)).build();
    }

    /** Return what a client of the role shows, null for nothing. */
    private Authentication authentication(String role) throws Exception {
        String given = settings.getProperty("role." + role);
        if (given == null) {
            throw new IllegalStateException("there is no role " + role);
        }
        String[] parts = given.split(" ", 2);
        return given.isEmpty() ? null : AuthenticationFactory.create(parts[0], parts[1]);
    }

    @Override
    public void close() throws Exception {
        for (Deeds each : clients.values()) {
            each.close();
        }
        for (PulsarAdmin each : admins.values()) {
            each.close();
        }
    }
}

import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
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

    private Roles(Properties settings) {
        this.settings = settings;
    }

    /** Read the settings of a file. */
    static Roles of(String path) throws Exception {
        Properties settings = new Properties();
        try (Reader file = new InputStreamReader(new FileInputStream(path), StandardCharsets.UTF_8)) {
            settings.load(file);
        }
        return new Roles(settings);
    }

    PulsarAdmin admin(String role) throws Exception {
        PulsarAdmin found = admins.get(role);
        if (found == null) {
            found = admin(authentication(role));
            admins.put(role, found);
        }
        return found;
    }

    PulsarAdmin admin(Authentication authentication) throws Exception {
        var builder = PulsarAdmin.builder().serviceHttpUrl(settings.getProperty("web"))
            .tlsTrustCertsFilePath(settings.getProperty("trust")).enableTlsHostnameVerification(true)
            .autoCertRefreshTime(1, TimeUnit.SECONDS).requestTimeout(PATIENCE_S, TimeUnit.SECONDS)
            .readTimeout(PATIENCE_S, TimeUnit.SECONDS);
        return (authentication == null ? builder : builder.authentication(authentication)).build();
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
        return client(authentication(role), role.equals("admin"));
    }

    PulsarClient client(Authentication authentication) throws Exception {
        return client(authentication, false);
    }

    private PulsarClient client(Authentication authentication, boolean transactions) throws Exception {
        var builder = PulsarClient.builder().serviceUrl(settings.getProperty("url")).enableTransaction(transactions)
            .tlsTrustCertsFilePath(settings.getProperty("trust")).enableTlsHostnameVerification(true)
            .autoCertRefreshSeconds(1).operationTimeout(PATIENCE_S, TimeUnit.SECONDS)
            .connectionTimeout(PATIENCE_S, TimeUnit.SECONDS);
        return (authentication == null ? builder : builder.authentication(authentication)).build();
    }

    String web() {
        return settings.getProperty("web");
    }

    /** Return the token of a role that has one in its parameters. */
    String token(String role) {
        return settings.getProperty("role." + role).split(" token:")[1];
    }

    /** Return a context that trusts the authorities of the file. */
    SSLContext trust() throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null);
        try (FileInputStream file = new FileInputStream(settings.getProperty("trust"))) {
            int number = 0;
            for (var each : CertificateFactory.getInstance("X.509").generateCertificates(file)) {
                store.setCertificateEntry(String.valueOf(number++), each);
            }
        }
        TrustManagerFactory trusted = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trusted.init(store);
        SSLContext made = SSLContext.getInstance("TLS");
        made.init(null, trusted.getTrustManagers(), null);
        return made;
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

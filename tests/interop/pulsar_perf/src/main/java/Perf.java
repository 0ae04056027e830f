import java.util.Arrays;
import org.apache.pulsar.testclient.CmdBase;
import org.apache.pulsar.testclient.PerformanceConsumer;
import org.apache.pulsar.testclient.PerformanceProducer;
import org.apache.pulsar.testclient.PerformanceReader;

/** Commands of pulsar-perf. Its own main class also loads those that need a broker's classes. */
public class Perf {
    public static void main(String[] args) {
        CmdBase command = switch (args[0]) {
            case "produce" -> new PerformanceProducer();
            case "consume" -> new PerformanceConsumer();
            case "read" -> new PerformanceReader();
            default -> throw new IllegalArgumentException(args[0]);
        };
        System.exit(command.run(Arrays.copyOfRange(args, 1, args.length)) ? 0 : 1);
    }
}

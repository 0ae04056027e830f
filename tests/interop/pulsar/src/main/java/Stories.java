import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Runs all stories by Pulsar's own client, {@code Stories URL WEB_URL} or {@code Stories SETTINGS} (see Roles), and prints
 * for each whether it holds. */
public final class Stories {
    /** A story. The names of its topics begin with the prefix. */
    interface Story {
        void tell(World world, String prefix) throws Exception;
    }

    private static final int AT_ONCE = 4;
    private static final int STORY_S = 120;
    private static final Map<String, Story> ALL = new TreeMap<>();

    static {
        ALL.put("access-modes", Producing::accessModes);
        ALL.put("batch-index-acks", Acknowledging::batchIndexes);
        ALL.put("chunks", Producing::chunks);
        ALL.put("delays", Delivering::delays);
        ALL.put("end-of-topic", Positions::endOfTopic);
        ALL.put("patterns", Patterns::watched);
        ALL.put("priorities", Delivering::priorities);
        ALL.put("read-compacted", Positions::readCompacted);
        ALL.put("redelivery", Acknowledging::redelivery);
        ALL.put("retry-letters", Acknowledging::retryLetters);
        ALL.put("schemas-auto", Schemas::automatic);
        ALL.put("schemas-key-value", Schemas::keyValues);
        ALL.put("schemas-none", Schemas::none);
        ALL.put("schemas-primitive", Schemas::primitives);
        ALL.put("schemas-protobuf", Schemas::protobuf);
        ALL.put("schemas-refused", Schemas::refused);
        ALL.put("schemas-structs", Schemas::structs);
        ALL.put("schemas-versions", Schemas::versions);
        ALL.put("seeks", Positions::seeks);
        ALL.put("sticky-ranges", Delivering::stickyRanges);
        ALL.put("table-views", Positions::tableViews);
    }

    private Stories() {
    }

    public static void main(String[] arguments) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(AT_ONCE);
        Map<String, Future<String>> told = new LinkedHashMap<>();
        for (String name : ALL.keySet()) {
            told.put(name, threads.submit(() -> tell(arguments, name)));
        }
        for (var each : told.entrySet()) {
            String found;
            try {
                found = each.getValue().get(STORY_S, TimeUnit.SECONDS);
            } catch (TimeoutException late) {
                found = "does not end";
            }
            System.out.println("story " + each.getKey() + " " + found);
        }
        System.exit(0);
    }

    /** Run a story with a client of its own: one whose connection breaks is not in the way of others. */
    private static String tell(String[] arguments, String name) {
        try (World world = arguments.length > 1 ? new World(arguments[0], arguments[1])
            : new World(Roles.of(arguments[0]))) {
            ALL.get(name).tell(world, World.NAMESPACE + name);
        } catch (Throwable error) {
            StringWriter trace = new StringWriter();
            error.printStackTrace(new PrintWriter(trace, true));
            return "fails: " + trace;
        }
        return "holds";
    }
}

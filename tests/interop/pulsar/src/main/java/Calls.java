import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Type;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;

/**
 * Makes the calls of a text, {@code Calls SETTINGS CALLS}, by PulsarAdmin and by the client, and prints each with what it
 * returned, as JSON, or threw. tests/golden/admin-client/README.md has the form of the text.
 */
public final class Calls {
    private static final Pattern NAME = Pattern.compile("\\{(\\w+)((?:\\.\\w+)*)\\}");
    private static final String USUAL = "admin";
    private final Roles roles;
    private final Map<String, Object> kept = new HashMap<>();

    private Calls(Roles roles) {
        this.roles = roles;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Integer> seen = new HashMap<>();
        try (Roles roles = Roles.of(arguments[0])) {
            Calls calls = new Calls(roles);
            for (String line : Files.readAllLines(Path.of(arguments[1]))) {
                if (line.isBlank() || line.startsWith("#")) {
                    continue;
                }
                int number = seen.merge(line, 1, Integer::sum);
                System.out.println(number == 1 ? line : line + " [" + number + "]");
                System.out.println("    " + calls.answer(line));
                System.out.flush();
            }
        }
        System.exit(0);
    }

    private String answer(String line) throws Exception {
        List<String> words = words(line.startsWith("~") || line.startsWith("*") ? line.substring(1) : line);
        String role = words.get(0).startsWith("@") ? words.remove(0).substring(1) : USUAL;
        String name = "";
        if (words.get(0).startsWith("$")) {
            name = words.remove(0).substring(1);
            words.remove(0);
        }
        String[] parts = words.remove(0).split("\\.");
        try {
            List<String> given = words.stream().map(this::filled).toList();
            Object target = parts[0].equals("client") ? roles.deeds(role) : section(roles.admin(role), parts[0]);
            Class<?> declared = parts[0].equals("client") ? Deeds.class
                : PulsarAdmin.class.getMethod(parts[0]).getReturnType();
            Object found = invoke(declared, target, parts[1], given);
            if (!name.isEmpty()) {
                kept.put(name, found);
            }
            return "returned " + Values.json(found);
        } catch (NoSuchElementException missing) {
            return "threw " + missing.getMessage();
        } catch (InvocationTargetException | ExecutionException | CompletionException thrown) {
            return "threw " + named(thrown);
        }
    }

    private static Object section(PulsarAdmin admin, String name) throws Exception {
        return PulsarAdmin.class.getMethod(name).invoke(admin);
    }

    /** Call the first method of that name which takes arguments of these texts. */
    private static Object invoke(Class<?> declared, Object target, String name, List<String> texts) throws Exception {
        List<Method> found = Arrays.stream(declared.getMethods())
            .filter(each -> each.getName().equals(name) && each.getParameterCount() == texts.size())
            .sorted(Comparator.comparing(Method::toGenericString)).toList();
        for (Method method : found) {
            Object[] values = new Object[texts.size()];
            Type[] types = method.getGenericParameterTypes();
            try {
                for (int number = 0; number < values.length; number++) {
                    values[number] = Values.made(texts.get(number), types[number]);
                }
            } catch (IllegalArgumentException other) {
                continue;
            }
            Object made = method.invoke(target, values);
            return made instanceof CompletableFuture<?> future ? future.get() : made;
        }
        throw new IllegalStateException(declared.getSimpleName() + "." + name + " does not take " + texts);
    }

    /** Return the class of what was thrown, and the status of an answer of the REST. */
    private static String named(Throwable thrown) {
        Throwable cause = thrown;
        while (cause.getCause() != null && (cause instanceof InvocationTargetException
            || cause instanceof ExecutionException || cause instanceof CompletionException)) {
            cause = cause.getCause();
        }
        String name = cause.getClass().getSimpleName();
        if (System.getenv("QUIRE_INTEROP_TRACES") != null) {
            cause.printStackTrace();
        }
        return cause instanceof PulsarAdminException refused ? name + " " + refused.getStatusCode() : name;
    }

    /** Replace the names of what was kept in braces. */
    private String filled(String text) {
        Matcher matcher = NAME.matcher(text);
        StringBuilder made = new StringBuilder();
        while (matcher.find()) {
            String path = matcher.group(2);
            Object value = kept.get(matcher.group(1));
            if (value == null) {
                throw new NoSuchElementException("no " + matcher.group(1));
            }
            for (String step : path.isEmpty() ? new String[0] : path.substring(1).split("\\.")) {
                value = Values.part(value, step);
            }
            matcher.appendReplacement(made, Matcher.quoteReplacement(Values.text(value)));
        }
        return matcher.appendTail(made).toString();
    }

    /** Cut at spaces outside brackets and quotation marks. */
    private static List<String> words(String line) {
        List<String> made = new ArrayList<>();
        StringBuilder word = new StringBuilder();
        int depth = 0;
        boolean quoted = false;
        for (char each : (line.strip() + " ").toCharArray()) {
            if (each == '"') {
                quoted = !quoted;
            } else if (!quoted) {
                depth += "{[".indexOf(each) >= 0 ? 1 : "}]".indexOf(each) >= 0 ? -1 : 0;
            }
            if (each == ' ' && depth == 0 && !quoted) {
                made.add(word.toString());
                word.setLength(0);
            } else {
                word.append(each);
            }
        }
        return made;
    }
}

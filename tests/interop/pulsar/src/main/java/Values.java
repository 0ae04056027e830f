import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.transaction.TxnID;
import org.apache.pulsar.client.impl.BatchMessageIdImpl;
import org.apache.pulsar.client.impl.MessageIdImpl;
import org.apache.pulsar.common.util.ObjectMapperFactory;
import org.apache.pulsar.shade.com.fasterxml.jackson.core.JsonProcessingException;
import org.apache.pulsar.shade.com.fasterxml.jackson.core.type.TypeReference;
import org.apache.pulsar.shade.com.fasterxml.jackson.databind.ObjectMapper;

/** Values of arguments from texts, and texts of values. */
final class Values {
    private static final ObjectMapper JSON = ObjectMapperFactory.getMapper().getObjectMapper();

    private Values() {
    }

    /** Return the value of that type which a text has. Raises IllegalArgumentException: it has none. */
    static Object made(String text, Type type) {
        Class<?> raw = type instanceof ParameterizedType given ? (Class<?>) given.getRawType() : (Class<?>) type;
        if (text.equals("null") && !raw.isPrimitive()) {
            return null;
        }
        if (raw == String.class) {
            return text.startsWith("\"") ? text.substring(1, text.length() - 1) : text;
        }
        if (raw == MessageId.class) {
            return messageId(text);
        }
        if (raw == TxnID.class) {
            String[] parts = text.split(":");
            return new TxnID(Long.parseLong(parts[0]), Long.parseLong(parts[1]));
        }
        if (raw == Optional.class) {
            return text.equals("none") ? Optional.empty()
                : Optional.of(made(text, ((ParameterizedType) type).getActualTypeArguments()[0]));
        }
        for (String each : List.of(text, '"' + text + '"')) {
            try {
                return JSON.readValue(each, JSON.constructType(type));
            } catch (JsonProcessingException | IllegalArgumentException other) {
                continue;
            }
        }
        return built(text, raw);
    }

    /** Make a value by the builder of its class, whose methods have the names of the object in JSON. */
    private static Object built(String text, Class<?> type) {
        try {
            Object builder = type.getMethod("builder").invoke(null);
            for (var each : JSON.readValue(text, new TypeReference<Map<String, Object>>() { }).entrySet()) {
                Method setter = null;
                for (Method method : builder.getClass().getMethods()) {
                    setter = method.getName().equals(each.getKey()) && method.getParameterCount() == 1 ? method : setter;
                }
                if (setter == null) {
                    throw new IllegalArgumentException("no " + each.getKey());
                }
                setter.setAccessible(true);
                setter.invoke(builder, made(JSON.writeValueAsString(each.getValue()), setter.getGenericParameterTypes()[0]));
            }
            Method build = builder.getClass().getMethod("build");
            build.setAccessible(true);
            return build.invoke(builder);
        } catch (ReflectiveOperationException | JsonProcessingException error) {
            throw new IllegalArgumentException(error);
        }
    }

    private static MessageId messageId(String text) {
        if (text.equals("earliest") || text.equals("latest")) {
            return text.equals("latest") ? MessageId.latest : MessageId.earliest;
        }
        if (!text.matches("-?\\d+:-?\\d+(:-?\\d+){0,2}")) {
            throw new IllegalArgumentException(text);
        }
        String[] parts = text.split(":");
        int partition = parts.length > 2 ? Integer.parseInt(parts[2]) : -1;
        MessageIdImpl whole = new MessageIdImpl(Long.parseLong(parts[0]), Long.parseLong(parts[1]), partition);
        return parts.length < 4 ? whole : new BatchMessageIdImpl(whole.getLedgerId(), whole.getEntryId(), partition,
            Integer.parseInt(parts[3]));
    }

    /** Return an element, a value of a map, the ledger or entry of an id, or the number of a transaction. */
    static Object part(Object value, String step) {
        if (value instanceof List<?> list) {
            return list.get(Integer.parseInt(step));
        }
        if (value instanceof Map<?, ?> map) {
            return map.get(step);
        }
        if (value instanceof TxnID transaction) {
            return transaction.getMostSigBits() + ":" + transaction.getLeastSigBits();
        }
        MessageIdAdv id = (MessageIdAdv) value;
        return step.equals("ledger") ? id.getLedgerId() : id.getEntryId();
    }

    /** Return the text of which `made` returns the value. */
    static String text(Object value) {
        if (!(value instanceof MessageIdAdv id)) {
            return value.toString();
        }
        String whole = id.getLedgerId() + ":" + id.getEntryId() + ":" + id.getPartitionIndex();
        return id.getBatchIndex() < 0 ? whole : whole + ":" + id.getBatchIndex();
    }

    static String json(Object value) throws JsonProcessingException {
        return JSON.writeValueAsString(plain(value));
    }

    private static Object plain(Object value) throws JsonProcessingException {
        if (value instanceof Optional<?> optional) {
            return plain(optional.orElse(null));
        }
        if (value instanceof byte[] bytes) {
            return new String(bytes, StandardCharsets.UTF_8);
        }
        if (value instanceof String text && (text.startsWith("{") || text.startsWith("["))) {
            return JSON.readTree(text);
        }
        if (value instanceof Message<?> message) {
            return plain(message);
        }
        if (value instanceof MessageIdAdv id) {
            return position(id);
        }
        if (value instanceof TxnID transaction) {
            return "transaction";
        }
        if (value instanceof Map<?, ?> map) {
            Map<String, Object> made = new TreeMap<>();
            for (var each : map.entrySet()) {
                made.put(String.valueOf(each.getKey()), plain(each.getValue()));
            }
            return made;
        }
        if (value instanceof Collection<?> collection) {
            List<Object> made = new ArrayList<>();
            for (Object each : collection) {
                made.add(plain(each));
            }
            if (value instanceof Set<?>) {
                made.sort((one, other) -> one.toString().compareTo(other.toString()));
            }
            return made;
        }
        return value;
    }

    private static Object plain(Message<?> message) throws JsonProcessingException {
        Map<String, Object> made = new LinkedHashMap<>();
        made.put("id", plain(message.getMessageId()));
        made.put("key", message.getKey());
        made.put("properties", message.getProperties());
        made.put("value", plain(message.getData()));
        made.put("producer", message.getProducerName());
        made.put("sequence", message.getSequenceId());
        made.put("published", message.getPublishTime() > 0);
        return made;
    }

    /** Return an id without its ledger, whose number differs between runs. */
    private static String position(MessageIdAdv id) {
        String ledger = id.getLedgerId() < 0 ? String.valueOf(id.getLedgerId()) : "ledger";
        String whole = ledger + ":" + id.getEntryId() + ":" + id.getPartitionIndex();
        return id.getBatchIndex() < 0 ? whole : whole + ":" + id.getBatchIndex() + "/" + id.getBatchSize();
    }
}

import com.google.protobuf.Timestamp;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.sql.Time;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.Arrays;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SchemaSerializationException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.api.schema.GenericSchema;
import org.apache.pulsar.client.api.schema.SchemaDefinition;
import org.apache.pulsar.client.impl.PulsarClientImpl;
import org.apache.pulsar.common.naming.TopicName;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;
import org.apache.pulsar.common.schema.SchemaInfo;
import org.apache.pulsar.common.schema.SchemaType;

/** All types of schemas that the client sends, their versions, and those that the server has to refuse. */
final class Schemas {
    /** Record that is written by reflection. */
    public static class Pet {
        public String name;
        public int age;
    }

    private Schemas() {
    }

    private static final Map<Schema<?>, Object> PRIMITIVES = new LinkedHashMap<>();

    static {
        PRIMITIVES.put(Schema.STRING, "text");
        PRIMITIVES.put(Schema.INT8, (byte) -8);
        PRIMITIVES.put(Schema.INT16, (short) -16);
        PRIMITIVES.put(Schema.INT32, -32);
        PRIMITIVES.put(Schema.INT64, -64L);
        PRIMITIVES.put(Schema.BOOL, true);
        PRIMITIVES.put(Schema.FLOAT, 1.5f);
        PRIMITIVES.put(Schema.DOUBLE, 2.5);
        PRIMITIVES.put(Schema.DATE, new Date(1_700_000_000_000L));
        PRIMITIVES.put(Schema.TIME, new Time(3_600_000L));
        PRIMITIVES.put(Schema.TIMESTAMP, new java.sql.Timestamp(1_700_000_000_000L));
        PRIMITIVES.put(Schema.INSTANT, Instant.ofEpochSecond(1_700_000_000L, 5));
        PRIMITIVES.put(Schema.LOCAL_DATE, LocalDate.of(2024, 2, 29));
        PRIMITIVES.put(Schema.LOCAL_TIME, LocalTime.of(23, 59, 1));
        PRIMITIVES.put(Schema.LOCAL_DATE_TIME, LocalDateTime.of(2024, 2, 29, 23, 59));
    }

    private static <T> Consumer<T> consumer(World world, Schema<T> schema, String topic, String name) throws Exception {
        return world.client.newConsumer(schema).topic(topic).subscriptionName(name)
            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
    }

    private static Optional<SchemaInfo> stored(World world, String topic) throws Exception {
        return ((PulsarClientImpl) world.client).getSchema(topic).get();
    }

    private static Optional<SchemaInfo> stored(World world, String topic, long version) throws Exception {
        return ((PulsarClientImpl) world.client).getLookup()
            .getSchema(TopicName.get(topic), ByteBuffer.allocate(8).putLong(version).array()).get();
    }

    private static void storedAs(World world, String topic, Schema<?> schema) throws Exception {
        SchemaInfo found = stored(world, topic).orElseThrow();
        SchemaInfo wanted = schema.getSchemaInfo();
        World.equal(found.getType(), wanted.getType(), "type of " + topic);
        World.equal(text(found), text(wanted), "definition of " + topic);
        World.equal(found.getProperties(), wanted.getProperties(), "properties of " + topic);
        String shown = world.rest("GET", "/schemas/" + topic.substring("persistent://".length()) + "/schema", "");
        World.check(shown.contains("\"type\":\"" + wanted.getType() + "\"")
            || shown.contains("\"type\": \"" + wanted.getType() + "\""), "REST of " + topic + ": " + shown);
    }

    /** Send a value and receive it. */
    private static <T> void sent(World world, String topic, Schema<T> schema, T value) throws Exception {
        try (Producer<T> producer = world.client.newProducer(schema).topic(topic).create();
                Consumer<T> consumer = consumer(world, schema, topic, "typed")) {
            storedAs(world, topic, schema);
            producer.send(value);
            Message<T> found = World.next(consumer);
            if (value instanceof Pet sent) {
                Pet came = (Pet) found.getValue();
                World.equal(came.name + came.age, sent.name + sent.age, "value of " + topic);
            } else {
                World.equal(found.getValue(), value, "value of " + topic);
            }
            World.check(found.getSchemaVersion() != null, "no version in the message of " + topic);
        }
    }

    /** Send a value, receive it, and receive it as a consumer that takes the schema of the topic. */
    private static <T> Message<GenericRecord> roundTrip(World world, String topic, Schema<T> schema, T value)
            throws Exception {
        sent(world, topic, schema, value);
        try (Consumer<GenericRecord> automatic = consumer(world, Schema.AUTO_CONSUME(), topic, "automatic")) {
            Message<GenericRecord> generic = World.next(automatic);
            World.equal(generic.getReaderSchema().orElseThrow().getSchemaInfo().getType(),
                schema.getSchemaInfo().getType(), "type that AUTO_CONSUME found for " + topic);
            return generic;
        }
    }

    @SuppressWarnings("unchecked")
    static void primitives(World world, String prefix) throws Exception {
        for (var each : PRIMITIVES.entrySet()) {
            String topic = prefix + "-" + each.getKey().getSchemaInfo().getType();
            Message<GenericRecord> found = roundTrip(world, topic, (Schema<Object>) each.getKey(), each.getValue());
            World.equal(found.getValue().getNativeObject(), each.getValue(), "AUTO_CONSUME of " + topic);
        }
    }

    private static Pet pet(String name, int age) {
        Pet made = new Pet();
        made.name = name;
        made.age = age;
        return made;
    }

    static void structs(World world, String prefix) throws Exception {
        for (Schema<Pet> schema : List.of(Schema.JSON(Pet.class), Schema.AVRO(Pet.class))) {
            String topic = prefix + "-" + schema.getSchemaInfo().getType();
            GenericRecord found = roundTrip(world, topic, schema, pet("Rex", 3)).getValue();
            World.equal(found.getField("name"), "Rex", "name in " + topic);
            World.equal(found.getField("age"), 3, "age in " + topic);
        }
    }

    static void protobuf(World world, String prefix) throws Exception {
        Timestamp value = Timestamp.newBuilder().setSeconds(7).setNanos(9).build();
        sent(world, prefix + "-avro", Schema.PROTOBUF(Timestamp.class), value);  // AUTO_CONSUME does not take this one
        GenericRecord found = roundTrip(world, prefix + "-native", Schema.PROTOBUF_NATIVE(Timestamp.class), value)
            .getValue();
        World.equal(found.getField("seconds"), 7L, "seconds by PROTOBUF_NATIVE");
    }

    static void keyValues(World world, String prefix) throws Exception {
        for (KeyValueEncodingType encoding : KeyValueEncodingType.values()) {
            String topic = prefix + "-" + encoding;
            Schema<KeyValue<String, Long>> schema = Schema.KeyValue(Schema.STRING, Schema.INT64, encoding);
            Message<GenericRecord> found = roundTrip(world, topic, schema, new KeyValue<>("k", 5L));
            World.equal(found.hasKey(), encoding == KeyValueEncodingType.SEPARATED, "the message has a key");
            KeyValue<?, ?> parts = (KeyValue<?, ?>) found.getValue().getNativeObject();
            World.equal(parts.getKey() + "=" + parts.getValue(), "k=5", "AUTO_CONSUME of " + topic);
            Schema<KeyValue<Pet, Pet>> structs = Schema.KeyValue(
                Schema.AVRO(Pet.class), Schema.JSON(Pet.class), encoding);
            try (Producer<KeyValue<Pet, Pet>> producer = world.client.newProducer(structs).topic(topic + "-structs")
                    .create(); Consumer<GenericRecord> consumer =
                    consumer(world, Schema.AUTO_CONSUME(), topic + "-structs", "s")) {
                storedAs(world, topic + "-structs", structs);
                producer.send(new KeyValue<>(pet("Rex", 3), pet("Tom", 4)));
                parts = (KeyValue<?, ?>) World.next(consumer).getValue().getNativeObject();
                World.equal(((GenericRecord) parts.getKey()).getField("name"), "Rex", "name in the key");
                World.equal(((GenericRecord) parts.getValue()).getField("name"), "Tom", "name in the value");
            }
        }
    }

    /** AUTO_PRODUCE_BYTES sends what fits to the schema of the topic; without one it sends anything. */
    static void automatic(World world, String prefix) throws Exception {
        Schema<Pet> schema = Schema.AVRO(Pet.class);
        try (Consumer<Pet> consumer = consumer(world, schema, prefix, "s");
                Producer<byte[]> producer = world.client.newProducer(Schema.AUTO_PRODUCE_BYTES()).topic(prefix)
                    .create()) {
            producer.send(schema.encode(pet("Rex", 3)));
            World.equal(World.next(consumer).getValue().name, "Rex", "name");
            World.refused(SchemaSerializationException.class, () -> producer.send(new byte[] {1}));
        }
        String plain = prefix + "-plain";
        try (Producer<byte[]> producer = world.client.newProducer(Schema.AUTO_PRODUCE_BYTES()).topic(plain).create();
                Consumer<byte[]> consumer = consumer(world, Schema.BYTES, plain, "s");
                Consumer<ByteBuffer> buffers = consumer(world, Schema.BYTEBUFFER, plain, "b")) {
            producer.send(new byte[] {1});
            World.equal(World.next(consumer).getValue()[0], (byte) 1, "byte");
            World.equal(World.next(buffers).getValue(), ByteBuffer.wrap(new byte[] {1}), "buffer");
            World.check(stored(world, plain).isEmpty(), "bytes have a schema");
        }
    }

    static void versions(World world, String topic) throws Exception {
        String text = text(Schema.AVRO(Pet.class).getSchemaInfo());
        GenericSchema<GenericRecord> newer = Schema.generic(SchemaInfo.builder().name("").type(SchemaType.AVRO).schema(
            text.replace("\"fields\":[", "\"fields\":[{\"name\":\"owner\",\"type\":\"string\",\"default\":\"none\"},")
                .getBytes(StandardCharsets.UTF_8)).build());
        try (Producer<Pet> first = world.client.newProducer(Schema.AVRO(Pet.class)).topic(topic).create();
                Consumer<GenericRecord> automatic = consumer(world, Schema.AUTO_CONSUME(), topic, "automatic")) {
            first.send(pet("Rex", 3));
            // A message of another schema, which the open producer registers.
            first.newMessage(newer).value(newer.newRecordBuilder().set("name", "Tom").set("age", 4).set("owner", "Ann")
                .build()).send();
            first.send(pet("Pip", 1));
            try (Producer<Pet> again = world.client.newProducer(Schema.AVRO(Pet.class)).topic(topic).create()) {
                again.send(pet("Old", 9));
            }
            long[] found = new long[4];
            for (int number = 0; number < 4; number++) {
                Message<GenericRecord> message = World.next(automatic);
                found[number] = ByteBuffer.wrap(message.getSchemaVersion()).getLong();
                World.equal(message.getValue().getFields().size(), number == 1 ? 3 : 2, "fields of " + number);
            }
            World.equal(Arrays.toString(found), "[0, 1, 0, 0]", "versions");
            World.equal(text(stored(world, topic, 0).orElseThrow()), text, "version 0");
            World.equal(text(stored(world, topic, 1).orElseThrow()), text(newer.getSchemaInfo()), "version 1");
            World.check(stored(world, topic, 9).isEmpty(), "there is a version 9");
        }
        try (Consumer<GenericRecord> consumer = consumer(world, newer, topic, "newer")) {
            World.equal(World.next(consumer).getValue().getField("owner").toString(), "none", "default of version 0");
            World.equal(World.next(consumer).getValue().getField("owner").toString(), "Ann", "owner");
        }
    }

    private static String text(SchemaInfo schema) {
        return new String(schema.getSchema(), StandardCharsets.UTF_8);
    }

    static void refused(World world, String prefix) throws Exception {
        try (Producer<Pet> producer = world.client.newProducer(Schema.AVRO(Pet.class)).topic(prefix).create()) {
            var incompatible = PulsarClientException.IncompatibleSchemaException.class;
            Schema<Pet> other = Schema.AVRO(SchemaDefinition.<Pet>builder().withJsonDef(
                text(Schema.AVRO(Pet.class).getSchemaInfo()).replace("\"int\"", "\"boolean\"")).build());
            for (Schema<?> schema : new Schema<?>[] {other, Schema.STRING, Schema.JSON(Pet.class)}) {
                World.refused(incompatible, () -> world.client.newProducer(schema).topic(prefix).create());
                World.refused(incompatible, () -> consumer(world, schema, prefix, "s"));
            }
            World.refused(incompatible, () -> producer.newMessage(Schema.INT32).value(1).send());
            producer.send(pet("Rex", 3));
        }
        World.check(stored(world, prefix, 1).isEmpty(), "a refused schema was stored");
        World.check(stored(world, prefix).orElseThrow().getType() == SchemaType.AVRO, "another schema");
    }

    /** A topic without a schema has none, and takes one. */
    static void none(World world, String prefix) throws Exception {
        try (Producer<byte[]> producer = world.client.newProducer().topic(prefix).create();
                Consumer<byte[]> consumer = consumer(world, Schema.BYTES, prefix, "s")) {
            World.check(stored(world, prefix).isEmpty(), "a topic of bytes has a schema");
            producer.send("x".getBytes(StandardCharsets.UTF_8));
            World.check(World.next(consumer).getReaderSchema().isPresent(), "no schema of bytes");
            World.check(stored(world, prefix + "-missing").isEmpty(), "a topic that is not there has a schema");
            World.equal(world.answer("GET", "/schemas/public/default/none-such/schema", "").statusCode(), 404, "REST");
            try (Consumer<GenericRecord> automatic = consumer(world, Schema.AUTO_CONSUME(), prefix, "automatic")) {
                World.equal(new String((byte[]) World.next(automatic).getValue().getNativeObject(),
                    StandardCharsets.UTF_8), "x", "AUTO_CONSUME of bytes");
            }
        }
        world.producer(prefix).close();
        storedAs(world, prefix, Schema.STRING);
        world.rest("DELETE", "/schemas/" + prefix.substring("persistent://".length()) + "/schema", "");
        World.check(stored(world, prefix).isEmpty(), "a deleted schema is found");
    }
}

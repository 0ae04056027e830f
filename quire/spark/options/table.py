"""All options of the source and the sink, in one table: `parse` accepts them and the documentation lists them. Pure.

    python -m quire.spark.options.table > docs/spark-options.md

Source of the other names: Spark's guide to its Kafka source, and the readme of pulsar-spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from quire.spark.options.foreign import FOREIGN

Use = Literal["batch", "stream", "write"]

BATCH: tuple[Use, ...] = ("batch",)
READ: tuple[Use, ...] = ("batch", "stream")
WRITE: tuple[Use, ...] = ("write",)
ALL: tuple[Use, ...] = ("batch", "stream", "write")


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `name` is as the documentation spells it; case makes no difference."""

    name: str
    uses: tuple[Use, ...]
    default: str
    """Default as a user would write it; "" if there is none."""
    meaning: str
    aliases: tuple[str, ...] = ()


OPTIONS: tuple[Option, ...] = (
    Option(
        "service.url",
        ALL,
        "pulsar://127.0.0.1:6650",
        "Address of the brokers: `pulsar://host:port`, or `pulsar+ssl://host:port` for TLS, several hosts "
        "comma-separated.",
        ("serviceUrl",),
    ),
    Option(
        "admin.url",
        ALL,
        "port 8080 of the first host of `service.url`, 8443 with TLS",
        "Address of their REST interface: `http://host:port`, or `https://host:port`. A sink uses it with "
        "`exactlyOnce` only.",
        ("adminUrl",),
    ),
    Option(
        "tlsTrustCertsFilePath",
        ALL,
        "the authorities of the system",
        "File with the authorities that sign the certificates of brokers, in PEM. It must be at this path on the "
        "driver and on every executor, as all files of TLS.",
        ("pulsar.client.tlsTrustCertsFilePath",),
    ),
    Option(
        "tlsCertificateFilePath",
        ALL,
        "",
        "File with the certificate that is shown to brokers, in PEM. It is the credential of a query without a token"
        " and a password.",
        ("pulsar.client.tlsCertificateFilePath",),
    ),
    Option(
        "tlsKeyFilePath",
        ALL,
        "",
        "File with the key of that certificate, in PEM, not encrypted.",
        ("pulsar.client.tlsKeyFilePath",),
    ),
    Option(
        "tlsHostnameVerificationEnable",
        ALL,
        "true",
        "`false`: a broker's certificate may have any name.",
        ("pulsar.client.tlsHostnameVerificationEnable",),
    ),
    Option(
        "tlsAllowInsecureConnection",
        ALL,
        "false",
        "`true`: any certificate of a broker is accepted. Whoever is between may then read and change everything.",
        ("pulsar.client.tlsAllowInsecureConnection",),
    ),
    Option(
        "authTokenFile",
        ALL,
        "",
        "Path of a file with a token, on the driver and on every executor. It is read for each connection, so a newer "
        "token takes the place of an older one.",
    ),
    Option(
        "authPasswordFile",
        ALL,
        "",
        "Path of a file with `user:password`, as `authTokenFile`.",
    ),
    Option(
        "authToken",
        ALL,
        "",
        "A token itself. It is in no plan, log or error, but a program, a notebook or a SQL text that holds it may be "
        "read by others; a file is better.",
    ),
    Option("authPassword", ALL, "", "`user:password` itself, as `authToken`."),
    Option(
        "topic",
        ALL,
        "",
        "The topic. A source needs exactly one of `topic`, `topics` and `topicsPattern`; to a sink it is the "
        "topic of all rows"
        " and wins over the column `__topic`.",
    ),
    Option("topics", READ, "", "Topics, comma-separated.", ("subscribe",)),
    Option(
        "topicsPattern",
        READ,
        "",
        "Topics by a regular expression: `tenant/namespace/expression`, or `expression` for `public/default`. "
        "The expression"
        " must match the whole local name, without `-partition-N`; the namespace is taken literally. New topics "
        "that match"
        " are read from their earliest entry.",
        ("subscribePattern",),
    ),
    Option(
        "startingOffsets",
        READ,
        "batch: earliest, stream: latest",
        "Start, if there is no checkpoint: `earliest`, `latest` (streams only), or JSON with the next entry of "
        "every partition:"
        ' `{"persistent://public/default/x-partition-0": "12:40"}`, `ledger:entry` or `ledger:entry:batch`;'
        ' -2 is earliest, -1 latest. Also as `{"x": {"0": -2, "1": "12:40"}}`; `{"x": -2}` for all partitions of `x`.',
    ),
    Option(
        "startingTimestamp",
        READ,
        "",
        "Begin at the first entry that was published at this time or later, in ms since 1970.",
        ("startingTime",),
    ),
    Option("endingOffsets", BATCH, "latest", "End of a batch read, exclusive: `latest`, or JSON as above."),
    Option(
        "startingOffsetsByTimestamp",
        READ,
        "",
        'Begin at a time for each partition, in ms since 1970: `{"x": {"0": 1700000000000, "1": 1700000060000}}`, or '
        '`{"x": 1700000000000}` for all partitions of `x`. Every partition needs one.',
    ),
    Option(
        "endingTimestamp",
        BATCH,
        "",
        "End before the first entry that was published at this time or later, in ms since 1970.",
        ("endingTime",),
    ),
    Option("endingOffsetsByTimestamp", BATCH, "", "End at a time for each partition, in the same form."),
    Option(
        "startingOffsetsByTimestampStrategy",
        READ,
        "latest",
        "Start of a partition that has no entry of the given time or later: `latest` is its end, `error` refuses the "
        "query, which is Kafka's default.",
    ),
    Option(
        "maxMessagesPerTrigger",
        READ,
        "",
        "Approximate maximum messages per trigger. Entries are taken whole, at least one; the number of messages "
        "in an entry"
        " is estimated. Not used by a batch read.",
        ("maxOffsetsPerTrigger",),
    ),
    Option(
        "maxBytesPerTrigger",
        READ,
        "",
        "Approximate maximum stored bytes per trigger: a number, or one with k, m or g (1024). Both limits apply"
        " if both are given. Not used by a batch read.",
    ),
    Option(
        "minMessagesPerTrigger",
        READ,
        "",
        "Approximate minimum messages per trigger: with fewer, a stream waits, at most `maxTriggerDelay`. "
        "`availableNow` does not wait. Not used by a batch read.",
        ("minOffsetsPerTrigger",),
    ),
    Option(
        "maxTriggerDelay",
        READ,
        "15m",
        "Maximum time that `minMessagesPerTrigger` holds messages back: a number with ms, s, m or h.",
    ),
    Option("minPartitions", READ, "", "Minimum number of tasks: large partitions are cut into several."),
    Option(
        "maxEntriesPerTask",
        READ,
        "",
        "Maximum entries of one task: larger partitions are cut into several tasks. An entry is a batch of messages, "
        "or one message.",
    ),
    Option(
        "failOnDataLoss",
        READ,
        "true",
        "Fail if entries that were to be read are gone; `false`: log a warning and skip them.",
    ),
    Option(
        "subscription",
        READ,
        "",
        "Name of the durable subscription that keeps unread data of a stream from being deleted. Use one name "
        "for each query, the"
        " same over restarts. It remains after the query stops: delete it when the query is no longer needed.",
        ("predefinedSubscription", "kafka.group.id"),
    ),
    Option(
        "subscriptionPrefix",
        READ,
        "",
        "Begin of the subscription's name, instead of `subscription`: the rest is a hash of the topics, so that the "
        "name is the same over restarts. Two queries of the same topics need two prefixes.",
        ("groupIdPrefix",),
    ),
    Option(
        "hold",
        READ,
        "stream: subscription, batch: none",
        "`subscription`, or `none`: only the topic's retention keeps the data. A stream needs a subscription or "
        "`none`.",
    ),
    Option(
        "columns",
        READ,
        "all",
        "Only these columns, in this order, comma-separated. Columns left out cost nothing. "
        "`__orderingKey`, `__schemaVersion`, and with `decode=schema` `__rawValue` and `__decodeError`, exist only "
        "where they are named.",
    ),
    Option(
        "includeHeaders",
        READ,
        "true",
        "`false` leaves out the column `__properties`, which has a message's properties (Kafka's headers).",
    ),
    Option(
        "decode",
        READ,
        "none",
        "`none`: `value` is binary. `schema`: it is decoded by the topic's schema (Avro, JSON, String, primitive, "
        "pairs), and has its type. See [spark.md](spark.md#values-by-schema).",
    ),
    Option(
        "schemaVersion",
        READ,
        "the newest one at load",
        "With `decode=schema`: version of the schema whose type `value` has. Messages of other versions are converted.",
    ),
    Option(
        "onDecodeError",
        READ,
        "fail",
        "With `decode=schema`, for a message that is no value of its schema: `fail`; `null`: `value` is null and "
        "`__decodeError` has the reason; `deadLetter`: the message goes to `deadLetterTopic`, and is not in the "
        "result.",
    ),
    Option(
        "deadLetterTopic",
        READ,
        "",
        "Topic for messages that cannot be decoded, at least once, with key, properties, event time, origin and "
        "reason. Tasks write to it while they read, so each action on a DataFrame writes again.",
    ),
    Option(
        "pollTimeoutMs",
        READ,
        "120000",
        "Time a task waits for entries that are known to exist.",
        ("kafkaConsumer.pollTimeoutMs",),
    ),
    Option(
        "operationTimeoutMs",
        ALL,
        "60000",
        "Time for which passing errors (an unavailable broker, a topic that moves) are retried.",
        ("pulsar.client.operationTimeoutMs",),
    ),
    Option(
        "chunkedMessageHold",
        READ,
        "1000",
        "Entries that the subscription stays behind the stream, at least 1: how far back pieces of a chunked "
        "message are found.",
    ),
    Option("topicsRefreshMs", READ, "10000", "Interval between searches for new topics and partitions."),
    Option(
        "readVia",
        READ,
        "auto",
        "`auto`: read closed ledgers from their bookies and the open one through its broker; where bookies cannot be "
        "reached, everything through the broker. `broker`: read everything through the brokers. `bookies`: read the "
        "open ledger from its bookies too, and fail if they cannot be reached. See "
        "[spark.md](spark.md#past-the-broker).",
    ),
    Option("batching", WRITE, "true", "Pack several messages into one entry.", ("pulsar.producer.batchingEnabled",)),
    Option(
        "chunking",
        WRITE,
        "false",
        "Send a message that is larger than the brokers accept in pieces, up to 256 MiB, which the source and official "
        "clients put together again. Not with `exactlyOnce`.",
        ("pulsar.producer.chunkingEnabled",),
    ),
    Option(
        "encode",
        WRITE,
        "none",
        "`none`: `value` is binary or text, and has no schema. `avro`, `json`: it is a struct, which is encoded; its "
        "type becomes a schema, which is registered with the topic. `primitive`: the same for text, numbers, booleans, "
        "dates and times.",
    ),
    Option("recordName", WRITE, "Record", "With `encode=avro` or `json`: name of the record in the schema."),
    Option(
        "keyValueEncoding",
        WRITE,
        "none",
        "With `encode`: `value` is a struct of `key` and `value`, and becomes a pair with a schema for each part: a "
        "struct as `encode` names it, binary as bytes, and anything else as a primitive value. `inline`: both are in "
        "the payload. `separated`: the key is that of the message, and there must be no column `__key`.",
    ),
    Option(
        "compression",
        WRITE,
        "none",
        "`none`, `lz4`, `zlib`, `zstd` or `snappy`.",
        ("pulsar.producer.compressionType",),
    ),
    Option(
        "hashingScheme",
        WRITE,
        "JavaStringHash",
        "Hash that routes a key to a partition; use the one of the topic's other producers: `JavaStringHash` is "
        "the default of the official"
        " Java and Go clients, `BoostHash` that of the Python and C++ clients (builds with Boost 1.81 or newer), "
        "and all of them support"
        " `Murmur3_32Hash`.",
        ("pulsar.producer.hashingScheme",),
    ),
    Option(
        "exactlyOnce",
        WRITE,
        "false",
        "Write each row once, also if a task, a batch or the driver is repeated. Each topic must have deduplication, "
        "and a stream the setting `spark.sql.adaptive.streaming.stateless.enabled=false`; otherwise the write is "
        "refused. See [spark.md](spark.md#which-guarantee-do-i-get).",
    ),
    Option(
        "sortRows",
        WRITE,
        "false",
        "With `exactlyOnce`: sort the rows of a task by their content, so that they have one order, however a shuffle "
        "delivers them. A task may have 256 MiB of rows then, and rows of a key are in the order of their event times "
        "and values.",
    ),
    Option(
        "txnAppId",
        WRITE,
        "",
        "With `exactlyOnce`, of a batch write: permanent name of the application. It and `txnVersion` identify a "
        "write, and a repetition of it writes no row again. Without both, only tasks that are repeated within one "
        "write are recognized.",
    ),
    Option(
        "txnVersion",
        WRITE,
        "",
        "Number of a write within its application, which grows from one to the next: in `foreachBatch`, the batch's.",
    ),
    Option("trace", ALL, "", "For tests: a file to which every process appends one line of JSON for each event."),
)

OF_SPARK = ("checkpointlocation", "queryname")
"""Options of Spark's own (in lower case) that it passes to sources and sinks too: ignored."""


def markdown() -> str:
    """Return the text of docs/spark-options.md."""
    lines = [
        '# Options of `format("quire")`',
        "",
        "Made by `python -m quire.spark.options.table`. Case makes no difference in names. An option that is not "
        "in the first table"
        " is an error, so that a misspelt one is noticed.",
        "",
        "| option | also | for | default | meaning |",
        "|---|---|---|---|---|",
    ]
    for option in OPTIONS:
        also = ", ".join(f"`{alias}`" for alias in option.aliases)
        uses = "all" if option.uses == ALL else ", ".join(option.uses)
        lines.append(f"| `{option.name}` | {also} | {uses} | {option.default} | {option.meaning} |")
    lines += [
        "",
        "## Your Kafka or Pulsar option here",
        "",
        "| yours | here |",
        "|---|---|",
    ]
    lines += [f"| `{alias}` | `{option.name}` |" for option in OPTIONS for alias in option.aliases]
    lines += [f"| `{foreign.name}` | {foreign.remedy} |" for foreign in FOREIGN]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")

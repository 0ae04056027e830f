"""Options of other sources that do not exist here, each with what to give instead. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Foreign:
    """An option of Kafka's source or of pulsar-spark that does not exist here, and its replacement."""

    name: str
    """A name that ends in `*` stands for all with that prefix."""
    remedy: str


CREDENTIALS = (
    "give authTokenFile=<path> or authToken=<token>, authPasswordFile or authPassword, or for a certificate "
    "tlsCertificateFilePath and tlsKeyFilePath"
)

FOREIGN: tuple[Foreign, ...] = (
    Foreign("kafka.bootstrap.servers", "this is not Kafka: give service.url=pulsar://host:6650"),
    Foreign("kafka.transactional.id", "give exactlyOnce=true; for a batch write also txnAppId and txnVersion"),
    Foreign("kafka.enable.idempotence", "give exactlyOnce=true"),
    Foreign("pulsar.producer.producerName", "give exactlyOnce=true; for a batch write also txnAppId and txnVersion"),
    Foreign(
        "kafka.*", "there are no Kafka client settings here; the timeouts are operationTimeoutMs and pollTimeoutMs"
    ),
    Foreign("assign", "name partitions as topics: topics=x-partition-0,x-partition-3"),
    Foreign("maxRecordsPerPartition", "give maxEntriesPerTask, which counts entries, or minPartitions"),
    Foreign("fetchOffset.*", "give operationTimeoutMs"),
    Foreign("waitingForNonExistedTopic", "create the topic first, or use topicsPattern, which reads it once it exists"),
    Foreign("allowDifferentTopicSchemas", "leave it out: with decode=none value is binary, whatever the schemas are"),
    Foreign("pulsar.client.auth*", CREDENTIALS),
    Foreign("pulsar.admin.auth*", f"{CREDENTIALS}; brokers and their REST interface have the same"),
    Foreign("pulsar.client.useTls", "give service.url=pulsar+ssl://host:6651 and admin.url=https://host:8443"),
    Foreign(
        "pulsar.admin.tls*", "give tlsTrustCertsFilePath or its like: brokers and their REST interface have the same"
    ),
    Foreign("pulsar.producer.sendTimeoutMs", "give operationTimeoutMs"),
    Foreign("pulsar.producer.topicName", "give topic=<name>"),
    Foreign("pulsar.reader.topicNames", "give topic=<name>"),
    Foreign("pulsar.reader.subscriptionName", "give subscription=<name>"),
    Foreign(
        "pulsar.reader.readCompacted",
        "leave it out: every message is a row; the newest of a key has the highest __ledger, __entry, __batch",
    ),
    Foreign(
        "pulsar.*", "there are no Pulsar client settings here; the timeouts are operationTimeoutMs and pollTimeoutMs"
    ),
    Foreign("path", "give topic=<name>"),
    Foreign("paths", "give topics=<name>,<name>"),
)

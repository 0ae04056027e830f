"""Commands of a client, and the meaning of their answers (pure). Every `required` field is set.

Source: docs/formats.md#errors; which answer carries which error was read from the official clients.
"""

from __future__ import annotations

from quire.client.errors import ServerRefusedError
from quire.client.message_id import MessageId
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.frames import PROTOCOL_VERSION, encode

_U64 = 0xFFFF_FFFF_FFFF_FFFF

PING = encode(pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing()))
PONG = encode(pb.BaseCommand(type=pb.BaseCommand.PONG, pong=pb.CommandPong()))

ANSWERS = {
    int(pb.BaseCommand.SUCCESS): "success",
    int(pb.BaseCommand.ERROR): "error",
    int(pb.BaseCommand.PRODUCER_SUCCESS): "producer_success",
    int(pb.BaseCommand.PARTITIONED_METADATA_RESPONSE): "partitionMetadataResponse",
    int(pb.BaseCommand.LOOKUP_RESPONSE): "lookupTopicResponse",
    int(pb.BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE): "getLastMessageIdResponse",
    int(pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE): "getTopicsOfNamespaceResponse",
    int(pb.BaseCommand.GET_SCHEMA_RESPONSE): "getSchemaResponse",
    int(pb.BaseCommand.ACK_RESPONSE): "ackResponse",
    int(pb.BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE): "addPartitionToTxnResponse",
    int(pb.BaseCommand.END_TXN_ON_PARTITION_RESPONSE): "endTxnOnPartitionResponse",
    int(pb.BaseCommand.TC_CLIENT_CONNECT_RESPONSE): "tcClientConnectResponse",
    int(pb.BaseCommand.NEW_TXN_RESPONSE): "newTxnResponse",
    int(pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE): "addSubscriptionToTxnResponse",
    int(pb.BaseCommand.END_TXN_RESPONSE): "endTxnResponse",
    int(pb.BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE): "endTxnOnSubscriptionResponse",
}
"""Field of each answer that has a request_id."""
_OF_TRANSACTIONS = (
    pb.BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE,
    pb.BaseCommand.END_TXN_ON_PARTITION_RESPONSE,
    pb.BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE,
    pb.BaseCommand.TC_CLIENT_CONNECT_RESPONSE,
    pb.BaseCommand.NEW_TXN_RESPONSE,
    pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
    pb.BaseCommand.END_TXN_RESPONSE,
)
"""Answers of coordinators, and among brokers: each has the fields error and message."""


def connect(client_name: str, proxy_to: str, method: str = "none", data: bytes = b"") -> pb.BaseCommand:
    """Return CONNECT. `proxy_to`: host:port of the broker to which a proxy forwards; "": none. `method`, `data`:
    credentials."""
    command = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
    command.connect.client_version = client_name
    command.connect.protocol_version = PROTOCOL_VERSION
    command.connect.auth_method_name = method
    if method != "none":
        command.connect.auth_data = data
        command.connect.feature_flags.supports_auth_refresh = True
    command.connect.feature_flags.supports_broker_entry_metadata = True
    if proxy_to:
        command.connect.proxy_to_broker_url = proxy_to
    return command


def auth_response(client_name: str, method: str, data: bytes) -> pb.BaseCommand:
    """Return the answer to AUTH_CHALLENGE."""
    command = pb.BaseCommand(type=pb.BaseCommand.AUTH_RESPONSE)
    command.authResponse.client_version = client_name
    command.authResponse.protocol_version = PROTOCOL_VERSION
    command.authResponse.response.auth_method_name = method
    command.authResponse.response.auth_data = data
    return command


def partitions(request_id: int, topic: str, *, create: bool) -> pb.BaseCommand:
    command = pb.BaseCommand(type=pb.BaseCommand.PARTITIONED_METADATA)
    command.partitionMetadata.topic = topic
    command.partitionMetadata.request_id = request_id
    command.partitionMetadata.metadata_auto_creation_enabled = create
    return command


def lookup(request_id: int, topic: str, *, authoritative: bool) -> pb.BaseCommand:
    command = pb.BaseCommand(type=pb.BaseCommand.LOOKUP)
    command.lookupTopic.topic = topic
    command.lookupTopic.request_id = request_id
    command.lookupTopic.authoritative = authoritative
    return command


def topics_of_namespace(request_id: int, namespace: str) -> pb.BaseCommand:
    command = pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE)
    command.getTopicsOfNamespace.request_id = request_id
    command.getTopicsOfNamespace.namespace = namespace
    command.getTopicsOfNamespace.mode = pb.CommandGetTopicsOfNamespace.PERSISTENT
    return command


def subscribe(
    request_id: int,
    consumer_id: int,
    topic: str,
    subscription: str,
    *,
    durable: bool,
    start: MessageId | None,
    create_topic: bool,
    name: str,
    compacted: bool = False,
) -> pb.BaseCommand:
    """Return SUBSCRIBE of an Exclusive consumer. A new subscription starts at `start` (None: the first entry)."""
    command = pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE)
    request = command.subscribe
    request.topic = topic
    request.subscription = subscription
    request.subType = pb.CommandSubscribe.Exclusive
    request.consumer_id = consumer_id
    request.request_id = request_id
    request.consumer_name = name
    request.durable = durable
    request.initialPosition = pb.CommandSubscribe.Earliest
    request.force_topic_creation = create_topic
    if compacted:
        request.read_compacted = True
    if start is not None:
        request.start_message_id.ledgerId = start.ledger_id & _U64
        request.start_message_id.entryId = start.entry_id & _U64
    return command


def flow(consumer_id: int, permits: int) -> pb.BaseCommand:
    command = pb.BaseCommand(type=pb.BaseCommand.FLOW)
    command.flow.consumer_id = consumer_id
    command.flow.messagePermits = permits
    return command


def acknowledge(request_id: int, consumer_id: int, through: MessageId) -> pb.BaseCommand:
    """Return a cumulative ACK, with answer, of a whole entry and all before it."""
    command = pb.BaseCommand(type=pb.BaseCommand.ACK)
    command.ack.consumer_id = consumer_id
    command.ack.ack_type = pb.CommandAck.Cumulative
    command.ack.request_id = request_id
    command.ack.message_id.add(ledgerId=through.ledger_id & _U64, entryId=through.entry_id & _U64)
    return command


def seek(request_id: int, consumer_id: int, position: MessageId) -> pb.BaseCommand:
    command = pb.BaseCommand(type=pb.BaseCommand.SEEK)
    command.seek.consumer_id = consumer_id
    command.seek.request_id = request_id
    command.seek.message_id.ledgerId = position.ledger_id & _U64
    command.seek.message_id.entryId = position.entry_id & _U64
    return command


def last_message_id(request_id: int, consumer_id: int) -> pb.BaseCommand:
    command = pb.BaseCommand(type=pb.BaseCommand.GET_LAST_MESSAGE_ID)
    command.getLastMessageId.consumer_id = consumer_id
    command.getLastMessageId.request_id = request_id
    return command


def unsubscribe(request_id: int, consumer_id: int) -> pb.BaseCommand:
    command = pb.BaseCommand(type=pb.BaseCommand.UNSUBSCRIBE)
    command.unsubscribe.consumer_id = consumer_id
    command.unsubscribe.request_id = request_id
    return command


def close_consumer(request_id: int, consumer_id: int) -> pb.BaseCommand:
    command = pb.BaseCommand(type=pb.BaseCommand.CLOSE_CONSUMER)
    command.close_consumer.consumer_id = consumer_id
    command.close_consumer.request_id = request_id
    return command


def get_schema(request_id: int, topic: str, version: bytes) -> pb.BaseCommand:
    """Return GET_SCHEMA. `version` empty: the newest one."""
    command = pb.BaseCommand(type=pb.BaseCommand.GET_SCHEMA)
    command.getSchema.request_id = request_id
    command.getSchema.topic = topic
    if version:
        command.getSchema.schema_version = version
    return command


def producer(
    request_id: int,
    producer_id: int,
    topic: str,
    *,
    name: str,
    given: bool,
    epoch: int,
    schema: pb.Schema | None,
    transactions: bool = False,
) -> pb.BaseCommand:
    """Return PRODUCER. `name` "": the broker generates one. `given`: the caller chose it. `epoch` grows with each
    reconnection. `transactions`: its messages may be parts of transactions."""
    command = pb.BaseCommand(type=pb.BaseCommand.PRODUCER)
    command.producer.topic = topic
    command.producer.producer_id = producer_id
    command.producer.request_id = request_id
    command.producer.epoch = epoch
    command.producer.user_provided_producer_name = given
    if name:
        command.producer.producer_name = name
    if transactions:
        command.producer.txn_enabled = True
    if schema is not None:
        command.producer.schema.CopyFrom(schema)
    return command


def close_producer(request_id: int, producer_id: int) -> pb.BaseCommand:
    command = pb.BaseCommand(type=pb.BaseCommand.CLOSE_PRODUCER)
    command.close_producer.producer_id = producer_id
    command.close_producer.request_id = request_id
    return command


def refusal(answer: pb.BaseCommand) -> ServerRefusedError | None:
    """Return the error in an answer, in whichever form its type has."""
    kind = answer.type
    if kind == pb.BaseCommand.ERROR:
        return ServerRefusedError(answer.error.error, answer.error.message)
    if kind == pb.BaseCommand.ACK_RESPONSE:
        ack = answer.ackResponse
        return ServerRefusedError(ack.error, ack.message) if ack.HasField("error") else None
    if kind == pb.BaseCommand.PARTITIONED_METADATA_RESPONSE:
        found = answer.partitionMetadataResponse
        failed = found.response == pb.CommandPartitionedTopicMetadataResponse.Failed or found.HasField("error")
        return ServerRefusedError(found.error, found.message) if failed else None
    if kind == pb.BaseCommand.LOOKUP_RESPONSE:
        route = answer.lookupTopicResponse
        failed = route.response == pb.CommandLookupTopicResponse.Failed or route.HasField("error")
        return ServerRefusedError(route.error, route.message) if failed else None
    if kind == pb.BaseCommand.GET_SCHEMA_RESPONSE:
        schema = answer.getSchemaResponse
        return ServerRefusedError(schema.error_code, schema.error_message) if schema.HasField("error_code") else None
    if kind in _OF_TRANSACTIONS:
        over = getattr(answer, ANSWERS[kind])
        return ServerRefusedError(over.error, over.message) if over.HasField("error") else None
    return None

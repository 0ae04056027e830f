"""Answers, as frames. Each failure travels in the reply type that the client waits for (pure).

Source: docs/formats.md#errors; which reply carries which error was read from the official clients.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.config import BrokerOptions
from broker.measures import Rates
from broker.ownership.urls import Urls, plain, split
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.frames import PROTOCOL_VERSION, encode

U64_MAX = (1 << 64) - 1
"""-1 in an unsigned field: "no request", "no ledger"."""


def command(kind: pb.BaseCommand.Type) -> pb.BaseCommand:
    """Return a BaseCommand of the given type, for the caller to fill."""
    reply = pb.BaseCommand()
    reply.type = kind
    return reply


def success(request_id: int) -> bytes:
    reply = command(pb.BaseCommand.SUCCESS)
    reply.success.request_id = request_id
    return encode(reply)


def error(request_id: int, code: pb.ServerError, message: str) -> bytes:
    reply = command(pb.BaseCommand.ERROR)
    reply.error.request_id = request_id
    reply.error.error = code
    reply.error.message = message
    return encode(reply)


def connected(server_version: str, protocol_version: int, options: BrokerOptions, *, refreshes: bool = False) -> bytes:
    """Return CONNECTED. `refreshes`: expired credentials can be replaced on the connection."""
    reply = command(pb.BaseCommand.CONNECTED)
    reply.connected.server_version = server_version
    reply.connected.protocol_version = protocol_version
    reply.connected.max_message_size = options.message_size_max
    # Without it the Java client asks with creation, gets 0 partitions, and takes the old names of retry topics for
    # existing ones. The other features are not served.
    reply.connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation = True
    reply.connected.feature_flags.supports_topic_watchers = options.pattern_evaluation
    if refreshes:
        reply.connected.feature_flags.supports_auth_refresh = True
    return encode(reply)


def auth_challenge(server_version: str, method: str, data: bytes) -> bytes:
    reply = command(pb.BaseCommand.AUTH_CHALLENGE)
    reply.authChallenge.server_version = server_version
    reply.authChallenge.protocol_version = PROTOCOL_VERSION
    reply.authChallenge.challenge.auth_method_name = method
    reply.authChallenge.challenge.auth_data = data
    return encode(reply)


def partitions(request_id: int, count: int) -> bytes:
    reply = command(pb.BaseCommand.PARTITIONED_METADATA_RESPONSE)
    body = reply.partitionMetadataResponse
    body.request_id = request_id
    body.partitions = count
    # The C++ client tests that the field is present, not its value: an absent default counts as a failure.
    body.response = pb.CommandPartitionedTopicMetadataResponse.Success
    return encode(reply)


def partitions_failed(request_id: int, code: pb.ServerError, message: str) -> bytes:
    reply = command(pb.BaseCommand.PARTITIONED_METADATA_RESPONSE)
    body = reply.partitionMetadataResponse
    body.request_id = request_id
    body.response = pb.CommandPartitionedTopicMetadataResponse.Failed
    body.error = code
    body.message = message
    return encode(reply)


def topics(request_id: int, names: list[str], *, topics_hash: str, filtered: bool, changed: bool) -> bytes:
    """Return the answer with topic names; empty `names` if nothing changed. `filtered`: only matches of the client's
    pattern."""
    reply = command(pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE)
    body = reply.getTopicsOfNamespaceResponse
    body.request_id = request_id
    body.topics.extend(names)
    body.topics_hash = topics_hash
    body.filtered = filtered
    body.changed = changed
    return encode(reply)


def topic_list(request_id: int, watcher_id: int, names: Iterable[str], topics_hash: str) -> bytes:
    reply = command(pb.BaseCommand.WATCH_TOPIC_LIST_SUCCESS)
    body = reply.watchTopicListSuccess
    body.request_id = request_id
    body.watcher_id = watcher_id
    body.topic.extend(names)
    body.topics_hash = topics_hash
    return encode(reply)


def topic_list_update(watcher_id: int, added: Iterable[str], removed: Iterable[str], topics_hash: str) -> bytes:
    reply = command(pb.BaseCommand.WATCH_TOPIC_UPDATE)
    body = reply.watchTopicUpdate
    body.watcher_id = watcher_id
    body.new_topics.extend(added)
    body.deleted_topics.extend(removed)
    body.topics_hash = topics_hash
    return encode(reply)


def lookup(request_id: int, urls: Urls) -> bytes:
    """Return a lookup answer to connect to that broker."""
    reply = command(pb.BaseCommand.LOOKUP_RESPONSE)
    body = reply.lookupTopicResponse
    body.request_id = request_id
    body.response = pb.CommandLookupTopicResponse.Connect
    _set_urls(body, urls)
    body.authoritative = True
    body.proxy_through_service_url = False
    return encode(reply)


def redirect(request_id: int, urls: Urls, *, authoritative: bool) -> bytes:
    """Return a lookup answer to ask that broker, which is to take the topic's bundle if `authoritative`."""
    reply = command(pb.BaseCommand.LOOKUP_RESPONSE)
    body = reply.lookupTopicResponse
    body.request_id = request_id
    body.response = pb.CommandLookupTopicResponse.Redirect
    _set_urls(body, urls)
    body.authoritative = authoritative
    body.proxy_through_service_url = False
    return encode(reply)


def _set_urls(body: pb.CommandLookupTopicResponse, urls: Urls) -> None:
    if url := plain(urls.broker_url):
        body.brokerServiceUrl = url
    if urls.broker_url_tls:
        body.brokerServiceUrlTls = urls.broker_url_tls


def lookup_failed(request_id: int, code: pb.ServerError, message: str) -> bytes:
    reply = command(pb.BaseCommand.LOOKUP_RESPONSE)
    body = reply.lookupTopicResponse
    body.request_id = request_id
    body.response = pb.CommandLookupTopicResponse.Failed
    body.error = code
    body.message = message
    return encode(reply)


def producer_success(
    request_id: int,
    producer_name: str,
    *,
    schema_version: bytes = b"",
    last_sequence_id: int = -1,
    topic_epoch: int | None = None,
    ready: bool = True,
) -> bytes:
    """Return the answer to PRODUCER. `ready` False: it waits for its turn, and another answer follows."""
    reply = command(pb.BaseCommand.PRODUCER_SUCCESS)
    body = reply.producer_success
    body.request_id = request_id
    body.producer_name = producer_name
    body.last_sequence_id = last_sequence_id
    body.schema_version = schema_version
    if topic_epoch is not None:
        body.topic_epoch = topic_epoch
    body.producer_ready = ready
    return encode(reply)


def send_error(producer_id: int, sequence_id: int, code: pb.ServerError, message: str) -> bytes:
    reply = command(pb.BaseCommand.SEND_ERROR)
    body = reply.send_error
    body.producer_id = producer_id
    body.sequence_id = sequence_id
    body.error = code
    body.message = message
    return encode(reply)


def ack_response(consumer_id: int, request_id: int, code: pb.ServerError | None = None, message: str = "") -> bytes:
    reply = command(pb.BaseCommand.ACK_RESPONSE)
    body = reply.ackResponse
    body.consumer_id = consumer_id
    body.request_id = request_id
    if code is not None:
        body.error = code
        body.message = message
    return encode(reply)


def _assign(body: pb.CommandCloseProducer | pb.CommandCloseConsumer, assigned: str) -> None:
    url, url_tls = split(assigned) if assigned else ("", "")
    if url:
        body.assignedBrokerServiceUrl = url
    if url_tls:
        body.assignedBrokerServiceUrlTls = url_tls


def close_producer(producer_id: int, assigned: str = "") -> bytes:
    """Return CLOSE_PRODUCER. `assigned`: URLs of the broker to connect to, with commas, if known; else the client looks
    it up."""
    reply = command(pb.BaseCommand.CLOSE_PRODUCER)
    reply.close_producer.producer_id = producer_id
    reply.close_producer.request_id = U64_MAX
    _assign(reply.close_producer, assigned)
    return encode(reply)


def close_consumer(consumer_id: int, assigned: str = "") -> bytes:
    """Return CLOSE_CONSUMER; see `close_producer`."""
    reply = command(pb.BaseCommand.CLOSE_CONSUMER)
    reply.close_consumer.consumer_id = consumer_id
    reply.close_consumer.request_id = U64_MAX
    _assign(reply.close_consumer, assigned)
    return encode(reply)


def active_consumer_change(consumer_id: int, is_active: bool) -> bytes:
    reply = command(pb.BaseCommand.ACTIVE_CONSUMER_CHANGE)
    reply.active_consumer_change.consumer_id = consumer_id
    reply.active_consumer_change.is_active = is_active
    return encode(reply)


def reached_end_of_topic(consumer_id: int) -> bytes:
    reply = command(pb.BaseCommand.REACHED_END_OF_TOPIC)
    reply.reachedEndOfTopic.consumer_id = consumer_id
    return encode(reply)


def consumer_stats(
    request_id: int,
    rates: Rates,
    *,
    name: str,
    kind: str,
    address: str,
    permits: int,
    unacked: int,
    blocked: bool,
    backlog: int,
) -> bytes:
    """Return a consumer's stats. The absence of an error code means success."""
    reply = command(pb.BaseCommand.CONSUMER_STATS_RESPONSE)
    body = reply.consumerStatsResponse
    body.request_id = request_id
    body.consumerName = name
    body.type = kind
    body.address = address
    body.availablePermits = max(0, permits)
    body.unackedMessages = unacked
    body.blockedConsumerOnUnackedMsgs = blocked
    body.msgBacklog = backlog
    body.msgRateOut, body.msgThroughputOut = rates.messages_out, rates.bytes_out
    body.msgRateRedeliver, body.messageAckRate = rates.redelivered, rates.acked
    body.msgRateExpired = rates.expired
    return encode(reply)


def last_message_id(
    request_id: int, last: tuple[int, int], partition: int, batch_index: int, mark_delete: tuple[int, int]
) -> bytes:
    """Return the last message id. `last` and `mark_delete` are (ledger, entry), -1 where there is none."""
    reply = command(pb.BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE)
    body = reply.getLastMessageIdResponse
    body.request_id = request_id
    body.last_message_id.ledgerId = last[0] & U64_MAX
    body.last_message_id.entryId = last[1] & U64_MAX
    body.last_message_id.partition = partition
    body.last_message_id.batch_index = batch_index
    body.consumer_mark_delete_position.ledgerId = mark_delete[0] & U64_MAX
    body.consumer_mark_delete_position.entryId = mark_delete[1] & U64_MAX
    return encode(reply)


def schema(request_id: int, found: pb.Schema, version: bytes) -> bytes:
    reply = command(pb.BaseCommand.GET_SCHEMA_RESPONSE)
    body = reply.getSchemaResponse
    body.request_id = request_id
    body.schema.CopyFrom(found)
    body.schema_version = version
    return encode(reply)


def schema_created(request_id: int, version: bytes) -> bytes:
    reply = command(pb.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE)
    body = reply.getOrCreateSchemaResponse
    body.request_id = request_id
    body.schema_version = version
    return encode(reply)


PING = encode(pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing()))
PONG = encode(pb.BaseCommand(type=pb.BaseCommand.PONG, pong=pb.CommandPong()))

_RESPONSES = {
    # command: (its body's field, the response's type, the response's field, the name of the error field)
    pb.BaseCommand.GET_SCHEMA: ("getSchema", pb.BaseCommand.GET_SCHEMA_RESPONSE, "getSchemaResponse", "error_code"),
    pb.BaseCommand.GET_OR_CREATE_SCHEMA: (
        "getOrCreateSchema",
        pb.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE,
        "getOrCreateSchemaResponse",
        "error_code",
    ),
    pb.BaseCommand.CONSUMER_STATS: (
        "consumerStats",
        pb.BaseCommand.CONSUMER_STATS_RESPONSE,
        "consumerStatsResponse",
        "error_code",
    ),
    pb.BaseCommand.TC_CLIENT_CONNECT_REQUEST: (
        "tcClientConnectRequest",
        pb.BaseCommand.TC_CLIENT_CONNECT_RESPONSE,
        "tcClientConnectResponse",
        "error",
    ),
    pb.BaseCommand.NEW_TXN: ("newTxn", pb.BaseCommand.NEW_TXN_RESPONSE, "newTxnResponse", "error"),
    pb.BaseCommand.ADD_PARTITION_TO_TXN: (
        "addPartitionToTxn",
        pb.BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE,
        "addPartitionToTxnResponse",
        "error",
    ),
    pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN: (
        "addSubscriptionToTxn",
        pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
        "addSubscriptionToTxnResponse",
        "error",
    ),
    pb.BaseCommand.END_TXN: ("endTxn", pb.BaseCommand.END_TXN_RESPONSE, "endTxnResponse", "error"),
    pb.BaseCommand.END_TXN_ON_PARTITION: (
        "endTxnOnPartition",
        pb.BaseCommand.END_TXN_ON_PARTITION_RESPONSE,
        "endTxnOnPartitionResponse",
        "error",
    ),
    pb.BaseCommand.END_TXN_ON_SUBSCRIPTION: (
        "endTxnOnSubscription",
        pb.BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE,
        "endTxnOnSubscriptionResponse",
        "error",
    ),
}


def coordinator_connected(request_id: int) -> bytes:
    reply = command(pb.BaseCommand.TC_CLIENT_CONNECT_RESPONSE)
    reply.tcClientConnectResponse.request_id = request_id
    return encode(reply)


def transaction_opened(request_id: int, most: int, least: int) -> bytes:
    """Return the answer to NEW_TXN. Both parts of the id are set even if 0: Go's client reads them without a check."""
    reply = command(pb.BaseCommand.NEW_TXN_RESPONSE)
    body = reply.newTxnResponse
    body.request_id = request_id
    body.txnid_most_bits = most
    body.txnid_least_bits = least
    return encode(reply)


def of_transaction(request: pb.BaseCommand, most: int, least: int) -> bytes:
    """Return the success of a command about a transaction, in its own response type."""
    field, kind, answer_field, _ = _RESPONSES[request.type]
    reply = command(kind)
    body = getattr(reply, answer_field)
    body.request_id = getattr(request, field).request_id
    body.txnid_most_bits = most
    body.txnid_least_bits = least
    return encode(reply)


def own_error(request: pb.BaseCommand, code: pb.ServerError, message: str) -> bytes:
    """Return a failure in the request's own response type if that has an error field, else ERROR."""
    for field, body in request.ListFields():
        if field.name == "type":
            continue
        request_id = getattr(body, "request_id", U64_MAX)
        shape = _RESPONSES.get(request.type)
        if shape is None or shape[0] != field.name:
            return error(request_id, code, message)
        reply = command(shape[1])
        answer = getattr(reply, shape[2])
        answer.request_id = request_id
        setattr(answer, shape[3], code)
        setattr(answer, "error_message" if shape[3] == "error_code" else "message", message)
        return encode(reply)
    return error(U64_MAX, code, message)

"""Single messages of a topic, as they are stored.

GET      {topic}/subscription/{subscription}/position/{number}
                                          the number-th entry that is not acknowledged, from 1
GET      {topic}/examinemessage?initialPosition=earliest|latest&messagePosition=1
                                          the messagePosition-th entry from that end
GET      {topic}/ledger/{ledger}/entry/{entry}
GET      {topic}/getMessageIdByIndex?index=7
                                          the entry with the message of that index; both ids -1: it was deleted; 404
                                          there is none yet; 412 brokerEntryMetadataInterceptors adds none
PUT      {topic}/backlogSize              body: message id; estimated bytes behind it

The body of an answer is the payload, decompressed; a batch is not taken apart. Its metadata are headers. 404: there is
no such message; 405: the topic is partitioned; 412: the topic is empty.
Source: Pulsar's PersistentTopicsBase, where generateResponseWithEntry has the headers.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime

from starlette.responses import Response

from broker.admin.errors import PreconditionError
from broker.admin.message_ids import message_id, parse
from broker.admin.openapi.parameters import ENTRY, LEDGER
from broker.admin.positions.every import on_topic, subscription_of
from broker.admin.requests import INT64_MAX, AdminCall
from broker.admin.resource import Payload, answer
from broker.dispatch.message_index import entry_with_index
from broker.errors import NoSuchMessageError, ServiceNotReadyError
from broker.topics.backlog_size import size_behind
from broker.topics.entry_stamps import INDEX
from broker.topics.topic import Topic
from managed_ledger.errors import ManagedLedgerError
from quire.ledger.position import Position
from quire.service.web.parameters import OneOf, PathNumber, WholeNumber
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.errors import PulsarWireError
from quire.wire.pulsar.metadata import broker_metadata, metadata_span, read_metadata

UNPACKED_BYTES_MAX = 64 << 20
"""Maximum bytes of a payload after decompression."""
_NTH = PathNumber("number", "Number of an entry that is not acknowledged, from 1.", 0, INT64_MAX)
_END = OneOf("initialPosition", "End from which entries are counted.", ("earliest", "latest"), "latest")
_FROM_END = WholeNumber("messagePosition", "Number of an entry from that end, from 1.", -INT64_MAX, INT64_MAX)
_INDEX = WholeNumber("index", "Index of a message.", -INT64_MAX, INT64_MAX, needed=True)
_TIMES = (("publish_time", "publish-time"), ("event_time", "event-time"), ("deliver_at_time", "deliver-at-time"))
_VALUES = [
    "null_value",
    "producer_name",
    "sequence_id",
    "replicated_from",
    "partition_key",
    "uncompressed_size",
    "encryption_algo",
    "partition_key_b64_encoded",
    "marker_type",
    "txnid_least_bits",
    "txnid_most_bits",
    "highest_sequence_id",
    "uuid",
    "num_chunks_from_msg",
    "total_chunk_msg_size",
    "chunk_id",
    "null_partition_key",
]
"""Fields whose value is a header by the name of the field, with dashes."""
_BYTES = ("encryption_param", "schema_version", "ordering_key")
"""Fields whose value is a header in base64."""


async def peek(call: AdminCall) -> Payload:
    name, number = call.subscription(), call.number(_NTH)

    async def work(topic: Topic) -> Payload:
        found = subscription_of(topic, name).cursor.nth_unacked(number) if number else None
        if found is None:
            raise NoSuchMessageError("Message not found")
        return await _message(topic, found)

    return await on_topic(call, work)


async def examine(call: AdminCall) -> Payload:
    end, given = call.choice(_END), call.whole(_FROM_END)
    number = max(1, 1 if given is None else given)

    async def work(topic: Topic) -> Payload:
        places = topic.ledger.index.places()
        if number > places.count:
            raise NoSuchMessageError("Message not found")
        return await _message(topic, places.place(number - 1 if end == "earliest" else places.count - number))

    async def checked(topic: Topic) -> Payload | None:
        return await work(topic) if topic.ledger.entry_count else None

    found = await on_topic(call, checked)
    if found is None:
        raise PreconditionError("Could not examine messages due to the total message is zero")
    return found


async def by_id(call: AdminCall) -> Payload:
    wanted = Position(call.number(LEDGER), call.number(ENTRY))

    async def work(topic: Topic) -> Payload:
        last = topic.ledger.last_entry_of(wanted.ledger_id)
        if last is None or wanted.entry_id > last:
            raise NoSuchMessageError("Message id not found")
        return await _message(topic, wanted)

    return await on_topic(call, work)


async def by_index(call: AdminCall) -> Response:
    index = call.whole(_INDEX) or 0

    async def work(topic: Topic) -> Position | None:
        if INDEX not in topic.context.options.entry_metadata:
            return None
        if index < 0:
            raise NoSuchMessageError(f"Invalid message index: {index}")
        try:
            found = await entry_with_index(topic.ledger, index)
        except ManagedLedgerError as error:
            raise ServiceNotReadyError(f"topic {topic.name.full}: {error}") from error
        if found is None:
            raise NoSuchMessageError(f"Message not found for index {index}")
        return found

    position = await on_topic(call, work)
    if position is None:
        raise PreconditionError("the broker adds no index to entries; see brokerEntryMetadataInterceptors")
    return answer(message_id(position, call.topic()))


async def backlog_size(call: AdminCall) -> Response:
    after = parse(await call.json()).position

    async def work(topic: Topic) -> int:
        return size_behind(topic.ledger, after)

    return answer(await on_topic(call, work))


async def _message(topic: Topic, position: Position) -> Payload:
    topic.check_open()
    try:
        run = await topic.ledger.read(position, 1, 1)
        if not run.payloads or (run.ledger_id, run.first_entry_id) != position:
            raise NoSuchMessageError("Message not found")
        entry = bytes(run.payloads[0])
        return response_of(position, entry, transaction_headers(topic, position, entry))
    except ManagedLedgerError as error:
        raise ServiceNotReadyError(f"{position} cannot be read: {error}") from error
    except PulsarWireError as error:
        raise NoSuchMessageError(f"{position} has unreadable metadata: {error}") from error


def transaction_headers(topic: Topic, position: Position, entry: bytes) -> dict[str, str]:
    """Return whether the transaction of an entry was aborted, and whether consumers may not have the entry yet.

    Pulsar's clients leave such messages out unless they are asked for."""
    held, bound = topic.screen.transactions, topic.read_bound
    found = {"txn-uncommitted": _shown(bound is not None and position > bound)}
    if read_metadata(entry).HasField("txnid_most_bits"):
        found["txn-aborted"] = _shown(held is not None and held.hides(entry))
    return found


def response_of(position: Position, entry: bytes, more: Mapping[str, str]) -> Payload:
    """Return the payload of an entry with its metadata, and `more`, as headers. Raises PulsarWireError."""
    metadata, added = read_metadata(entry), broker_metadata(entry)
    _, start = metadata_span(entry)
    has = metadata.HasField
    properties = {_text(pair.key): _text(pair.value) for pair in metadata.properties}
    headers: list[tuple[str, str]] = [
        ("Message-ID", str(position)),
        ("PROPERTY", json.dumps(properties, separators=(",", ":"))),
    ]
    if added is not None and added.HasField("broker_timestamp"):
        headers.append(("Broker-Entry-METADATA-timestamp", _time(added.broker_timestamp)))
    if added is not None and added.HasField("index"):
        headers.append(("Broker-Entry-METADATA-index", str(added.index)))
    headers += [(name, _time(getattr(metadata, field))) for field, name in _TIMES if has(field)]
    if has("num_messages_in_batch"):
        headers.append(("num-batch-message", str(metadata.num_messages_in_batch)))
        headers.append(("batch-size", str(len(entry) - metadata.ByteSize())))
    if has("num_chunks_from_msg"):
        headers.append(("PROPERTY-TOTAL-CHUNKS", str(metadata.num_chunks_from_msg)))
        headers.append(("PROPERTY-CHUNK-ID", str(metadata.chunk_id)))
    headers.append(("Is-Encrypted", _shown(bool(metadata.encryption_keys))))
    headers += [(field.replace("_", "-"), _shown(getattr(metadata, field))) for field in _VALUES if has(field)]
    headers += [("replicated-to", _text(cluster)) for cluster in metadata.replicate_to]
    if has("compression"):
        headers.append(("compression", pb.CompressionType.Name(metadata.compression)))
    headers += [("Base64-encryption-keys", _base64(key.SerializeToString())) for key in metadata.encryption_keys]
    headers += [
        (f"Base64-{field.replace('_', '-')}", _base64(getattr(metadata, field))) for field in _BYTES if has(field)
    ]
    headers.append(("txn-consumable", "true"))
    headers += more.items()
    response = Payload(_payload(metadata, entry[start:]))
    response.raw_headers += [(f"X-Pulsar-{name}".encode(), _one_line(value)) for name, value in headers]
    return response


def _payload(metadata: pb.MessageMetadata, data: bytes) -> bytes:
    """Return a payload, decompressed if that is possible without a key. Raises PulsarWireError."""
    if metadata.encryption_keys or metadata.compression == pb.NONE:
        return data
    # Imported here because the codecs take long to load, and no other request needs them.
    from quire.client.compression import decompress
    from quire.client.errors import CorruptEntryError

    try:
        return decompress(metadata.compression, data, metadata.uncompressed_size, size_max=UNPACKED_BYTES_MAX)
    except CorruptEntryError as error:
        raise PulsarWireError(str(error)) from error


def _time(ms: int) -> str:
    """Format a time as the original does.

    >>> _time(1_700_000_000_123)
    '2023-11-14T22:13:20.123Z'
    """
    try:
        found = datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(ms)  # of a clock that is thousands of years ahead
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _text(value) if isinstance(value, str | bytes) else str(value)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


def _one_line(value: str) -> bytes:
    """Return the value of a header in UTF-8. Control characters, which no header may hold, become question marks."""
    return "".join(each if each.isprintable() else "?" for each in value).encode(errors="replace")

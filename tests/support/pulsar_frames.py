"""Pulsar's frames, encoded and decoded with protobuf: a slow implementation with which the fast code is compared, and
which the clients and brokers of tests use."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from crc32c import crc32c

from quire.wire.pulsar import PulsarApi_pb2 as pb

C = pb.BaseCommand
SUB = pb.CommandSubscribe
U64_MAX = (1 << 64) - 1
MAGIC = b"\x0e\x01"
"""Begins the part of a SEND behind the command, in front of its CRC32C."""
_U32 = struct.Struct("!I")


# --- frames and entries


def frame(command: pb.BaseCommand | bytes, tail: bytes = b"") -> bytes:
    body = command if isinstance(command, bytes) else command.SerializeToString()
    return _U32.pack(4 + len(body) + len(tail)) + _U32.pack(len(body)) + body + tail


class Frames:
    """Cuts received bytes into frames."""

    def __init__(self) -> None:
        self._held = bytearray()

    def cut(self, data: bytes | bytearray) -> Iterator[tuple[pb.BaseCommand, bytes]]:
        """Yield the commands that end in these bytes, each with what stands behind it."""
        held = self._held
        held += data
        while len(held) >= 4 and len(held) >= (size := 4 + _U32.unpack_from(held)[0]):
            end = 8 + _U32.unpack_from(held, 4)[0]
            command, tail = C.FromString(bytes(held[8:end])), bytes(held[end:size])
            del held[:size]
            yield command, tail


def metadata(**fields: Any) -> bytes:
    defaults: dict[str, Any] = {"producer_name": "p", "sequence_id": 0, "publish_time": 1}
    return bytes(pb.MessageMetadata(**{**defaults, **fields}).SerializeToString())


def entry(payload: bytes = b"hello", **fields: Any) -> bytes:
    """Return the part of a SEND behind the command: magic, checksum, metadata, payload."""
    return entry_of(metadata(**fields), payload)


def entry_of(packed: bytes, payload: bytes = b"payload") -> bytes:
    """Return an entry of metadata that are packed already."""
    checked = _U32.pack(len(packed)) + packed + payload
    return MAGIC + _U32.pack(crc32c(checked)) + checked


def payload_of(tail: bytes) -> bytes:
    """Return the payload of an entry."""
    return tail[10 + _U32.unpack_from(tail, 6)[0] :]


def is_whole(tail: bytes) -> bool:
    """Return whether an entry has the checksum of its metadata and payload."""
    return tail.startswith(MAGIC) and crc32c(tail[6:]) == _U32.unpack_from(tail, 2)[0]


# --- commands


def command(kind: str, field: str, **fields: Any) -> bytes:
    base = pb.BaseCommand(type=kind)
    part = getattr(base, field)
    part.SetInParent()
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(part, name).extend(value)
        elif isinstance(value, pb.MessageIdData):
            getattr(part, name).CopyFrom(value)
        else:
            setattr(part, name, value)
    return bytes(base.SerializeToString())


def send(sequence_id: int, producer_id: int = 0, stored: bytes | None = None, **fields: Any) -> bytes:
    body = entry(sequence_id=sequence_id) if stored is None else stored
    return frame(command("SEND", "send", producer_id=producer_id, sequence_id=sequence_id, **fields), body)


class Commands(ABC):
    """Requests of a client, sent without waiting for their answers."""

    def __init__(self) -> None:
        self._requests = 0

    def next_id(self) -> int:
        self._requests += 1
        return self._requests

    @abstractmethod
    def send(self, command: pb.BaseCommand, tail: bytes = b"") -> None:
        """Send one frame."""

    def pong(self) -> None:
        self.send(C(type=C.PONG, pong=pb.CommandPong()))

    def ask_connect(self, client_version: str = "test") -> None:
        self.send(C(type=C.CONNECT, connect=pb.CommandConnect(client_version=client_version, protocol_version=20)))

    def ask_lookup(self, topic: str, **options: Any) -> None:
        body = pb.CommandLookupTopic(topic=topic, request_id=self.next_id(), **options)
        self.send(C(type=C.LOOKUP, lookupTopic=body))

    def ask_producer(self, topic: str, producer_id: int = 1, **options: Any) -> None:
        body = pb.CommandProducer(topic=topic, producer_id=producer_id, request_id=self.next_id(), **options)
        self.send(C(type=C.PRODUCER, producer=body))

    def send_message(self, payload: bytes, sequence_id: int = 0, producer_id: int = 1, **metadata: Any) -> None:
        self.send_entry(entry(payload, sequence_id=sequence_id, **metadata), sequence_id, producer_id)

    def send_entry(self, tail: bytes, sequence_id: int = 0, producer_id: int = 1) -> None:
        body = pb.CommandSend(producer_id=producer_id, sequence_id=sequence_id, num_messages=1)
        self.send(C(type=C.SEND, send=body), tail)

    def ask_subscribe(self, topic: str, name: str = "s", consumer_id: int = 1, **options: Any) -> None:
        options = {"subType": SUB.Exclusive, "initialPosition": SUB.Earliest, **options}
        body = SUB(topic=topic, subscription=name, consumer_id=consumer_id, request_id=self.next_id(), **options)
        self.send(C(type=C.SUBSCRIBE, subscribe=body))

    def flow(self, permits: int, consumer_id: int = 1) -> None:
        self.send(C(type=C.FLOW, flow=pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits)))

    def send_ack(
        self,
        *ids: pb.MessageIdData,
        consumer_id: int = 1,
        cumulative: bool = False,
        request_id: int | None = None,
        properties: dict[str, int] | None = None,
        **options: Any,
    ) -> None:
        kind = pb.CommandAck.Cumulative if cumulative else pb.CommandAck.Individual
        pairs = [pb.KeyLongValue(key=key, value=value) for key, value in (properties or {}).items()]
        body = pb.CommandAck(
            consumer_id=consumer_id, ack_type=kind, message_id=ids, request_id=request_id, properties=pairs, **options
        )
        self.send(C(type=C.ACK, ack=body))

    def redeliver(self, *ids: pb.MessageIdData, consumer_id: int = 1) -> None:
        body = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=consumer_id, message_ids=ids)
        self.send(C(type=C.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=body))

    def seek(self, consumer_id: int = 1, **target: Any) -> int:
        request_id = self.next_id()
        body = pb.CommandSeek(consumer_id=consumer_id, request_id=request_id, **target)
        self.send(C(type=C.SEEK, seek=body))
        return request_id

    def unsubscribe(self, consumer_id: int = 1, *, force: bool = False) -> None:
        body = pb.CommandUnsubscribe(consumer_id=consumer_id, request_id=self.next_id(), force=force)
        self.send(C(type=C.UNSUBSCRIBE, unsubscribe=body))

    def close_consumer(self, consumer_id: int = 1) -> None:
        body = pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=self.next_id())
        self.send(C(type=C.CLOSE_CONSUMER, close_consumer=body))

    def close_producer(self, producer_id: int = 1) -> None:
        body = pb.CommandCloseProducer(producer_id=producer_id, request_id=self.next_id())
        self.send(C(type=C.CLOSE_PRODUCER, close_producer=body))

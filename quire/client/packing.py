"""Packing of messages into the entries that a producer sends. Pure.

    entry      0x0e01 crc32c metadataSize MessageMetadata payload         see batches.py for the payload of a batch

Metadata is written by hand in the order of the field numbers: name, sequence id and publish time are known only when
the entry is sent, and everything behind them is made here. Messages with a key share a batch only with messages of that
key, so that Key_Shared subscriptions find one key per entry. A batch of one is sent as a plain message.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct

from crc32c import crc32c

from quire.client.compression import KINDS, compress
from quire.client.routing import key_text
from quire.wire.pulsar.frames import MAGIC, MESSAGE_SIZE_MAX, encode_varint
from quire.wire.pulsar.PulsarApi_pb2 import NONE

_HEAD = Struct("!HII")
_SIZE = Struct("!I")
ENVELOPE_MAX = 256
"""Bytes reserved for what `Packed.encode` adds: sizes, the producer's name, sequence id, publish time."""


@dataclass(frozen=True, slots=True)
class Packed:
    """An entry that lacks only its producer's name, its sequence id and its publish time."""

    count: int
    """Messages in it, at least 1: the num_messages of SEND."""
    size: int
    """Bytes of payload and metadata, without the additions of `encode`."""
    fields: bytes
    """Part of MessageMetadata behind publish_time."""
    payload: bytes

    def encode(self, producer_name: str, sequence_id: int, publish_ms: int) -> bytes:
        """Return the entry, from 0x0e01 on."""
        name = producer_name.encode()
        metadata = b"\x0a%b%b\x10%b\x18%b%b" % (
            encode_varint(len(name)), name, encode_varint(sequence_id), encode_varint(publish_ms), self.fields
        )  # fmt: skip
        size = _SIZE.pack(len(metadata))
        checksum = crc32c(self.payload, crc32c(metadata, crc32c(size)))
        return b"".join((_HEAD.pack(MAGIC, checksum, len(metadata)), metadata, self.payload))


def pack(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | str | None] | None = None,
    properties: Sequence[Sequence[tuple[str, str]] | None] | None = None,
    event_ms: Sequence[int | None] | None = None,
    *,
    ordering_keys: Sequence[bytes | None] | None = None,
    deliver_ms: Sequence[int | None] | None = None,
    schema_version: bytes = b"",
    batch: bool = True,
    in_order: bool = False,
    keys_as_base64: bool = False,
    compression: str = "none",
    batch_messages_max: int = 1000,
    batch_bytes_max: int = 128 << 10,
    message_size_max: int = MESSAGE_SIZE_MAX,
) -> list[Packed]:
    """Pack messages, given as parallel columns, into entries. Order is kept within each key, and among those without
    one.

    A value None is a message without a value, a key None one without a key, an event time None or 0 (ms since 1970)
    none. An omitted column counts as all None.

    Args:
        ordering_keys: keys by which Key_Shared subscriptions choose the consumer, instead of the messages' keys.
        deliver_ms: times before which Shared subscriptions do not deliver a message, in ms since 1970; None or 0: at
            once. Such a message is in no batch. With one of these columns the order of all messages is kept.
        schema_version: version of the schema of all messages; empty: they have none.
        in_order: keep the order of all messages: only consecutive ones of a key share a batch.
        keys_as_base64: send every key as base64, and not only those that are no text: official clients do so with the
            keys of separated pairs.
        compression: one of compression.KINDS. A payload that does not become smaller is left uncompressed.
        batch_messages_max: maximum messages of a batch.
        batch_bytes_max: maximum bytes of a batch before compression.
        message_size_max: maximum bytes of a message with its metadata, as sent.

    Returns:
        The entries, for `Producer.send`.

    Raises:
        ValueError: a message is above `message_size_max`, a time is below 0, or the compression is unknown.
    """
    if compression not in KINDS:
        raise ValueError(f"compression {compression!r} is not one of {', '.join(KINDS)}")
    packer = _Packer(values, keys, properties, event_ms, KINDS[compression], message_size_max)
    packer.ordering_keys, packer.deliver_ms, packer.schema_version = ordering_keys, deliver_ms, schema_version
    packer.keys_as_base64 = keys_as_base64
    if not batch:
        return [packer.plain(row) for row in range(len(values))]
    bytes_max = min(batch_bytes_max, message_size_max - ENVELOPE_MAX)
    packed: list[Packed] = []
    if ordering_keys is not None or deliver_ms is not None:
        runs = _runs_of(keys, ordering_keys, deliver_ms, len(values))
    else:
        runs = _runs(keys, len(values)) if in_order else _by_key(keys, len(values))
    for rows in runs:
        packer.batches(rows, batch_messages_max, bytes_max, packed)
    return packed


def _by_key(keys: Sequence[bytes | str | None] | None, count: int) -> Sequence[Sequence[int]]:
    """Return the rows of each key, in the order in which the keys appear."""
    if keys is None:
        return [range(count)]
    groups: dict[bytes | None, list[int]] = {}
    for row, key in enumerate(keys):
        if isinstance(key, str):
            key = key.encode()
        group = groups.get(key)
        if group is None:
            groups[key] = [row]
        else:
            group.append(row)
    return list(groups.values())


def _runs(keys: Sequence[bytes | str | None] | None, count: int) -> Sequence[Sequence[int]]:
    """Return the runs of consecutive rows with one key, or without one."""
    if keys is None:
        return [range(count)]
    begins = [row for row in range(count) if row == 0 or keys[row] != keys[row - 1]]
    return [range(begin, stop) for begin, stop in pairwise([*begins, count])]


def _runs_of(
    keys: Sequence[bytes | str | None] | None,
    ordering_keys: Sequence[bytes | None] | None,
    deliver_ms: Sequence[int | None] | None,
    count: int,
) -> Sequence[Sequence[int]]:
    """Return the runs of consecutive rows that may share a batch: of one key and one ordering key, to be delivered at
    once."""
    parts = [column for column in (keys, ordering_keys) if column is not None]
    begins = [
        row
        for row in range(count)
        if row == 0
        or any(column[row] != column[row - 1] for column in parts)
        or (deliver_ms is not None and (deliver_ms[row] or deliver_ms[row - 1]))
    ]
    return [range(begin, stop) for begin, stop in pairwise([*begins, count])]


class _Packer:
    """Columns, and the encoding of their rows."""

    ordering_keys: Sequence[bytes | None] | None = None
    deliver_ms: Sequence[int | None] | None = None
    schema_version: bytes = b""
    keys_as_base64 = False

    def __init__(
        self,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | str | None] | None,
        properties: Sequence[Sequence[tuple[str, str]] | None] | None,
        event_ms: Sequence[int | None] | None,
        kind: int,
        message_size_max: int,
    ) -> None:
        self._values = values
        self._keys = keys
        self._properties = properties
        self._event_ms = event_ms
        self._kind = kind
        self._size_max = message_size_max - ENVELOPE_MAX

    def plain(self, row: int) -> Packed:
        """Return the entry of a message that is not in a batch."""
        value = self._values[row]
        # Fields 4, 6 | 12 | 16 to 19, 25 of MessageMetadata, around those of the compression.
        key = self._keys[row] if self._keys is not None else None
        key_field, encoded = (b"", False) if key is None else _key(b"\x32", key, self.keys_as_base64)
        fields = [self._pairs(row, b"\x22"), key_field]
        event = self._event(row)
        if event:
            fields.append(b"\x60" + encode_varint(event))
        fields.append(self._version())
        if encoded:
            fields.append(b"\x88\x01\x01")
        fields.append(self._ordering(row, b"\x92\x01"))
        if deliver := self._time(self.deliver_ms, row, "time of delivery"):
            fields.append(b"\x98\x01" + encode_varint(deliver))
        if value is None:
            fields.append(b"\xc8\x01\x01")
        return self._packed(1, fields, value or b"", f"message {row}")

    def batches(self, rows: Sequence[int], messages_max: int, bytes_max: int, into: list[Packed]) -> None:
        """Return the entries of messages that share a key, or have none: batches as large as the bounds allow."""
        values = self._values
        key = self._keys[rows[0]] if self._keys is not None and rows else None
        key_field, encoded = (b"", False) if key is None else _key(b"\x12", key, self.keys_as_base64)
        plain_rows = self._properties is None and self._event_ms is None and not encoded and not self.ordering_keys
        parts: list[bytes] = []
        begin = size = 0
        for number, row in enumerate(rows):
            value = values[row]
            # Fields 1, 2, 3 | 5, 6, 7, 9 of SingleMessageMetadata.
            length = encode_varint(len(value)) if value is not None else b"\x00"
            if plain_rows and value is not None:
                metadata = key_field + b"\x18" + length
            else:
                event = self._event(row)
                metadata = b"%b%b\x18%b%b%b%b%b" % (
                    self._pairs(row, b"\x0a"), key_field, length, b"\x28" + encode_varint(event) if event else b"",
                    b"\x30\x01" if encoded else b"", self._ordering(row, b"\x3a"),
                    b"\x48\x01" if value is None else b"",
                )  # fmt: skip
            added = 4 + len(metadata) + (len(value) if value else 0)
            if number > begin and (size + added > bytes_max or number - begin >= messages_max):
                self._close(rows, begin, number, parts, key_field, encoded, into)
                parts, begin, size = [], number, 0
            parts += (_SIZE.pack(len(metadata)), metadata, value or b"")
            size += added
        if rows:
            self._close(rows, begin, len(rows), parts, key_field, encoded, into)

    def _close(
        self,
        rows: Sequence[int],
        begin: int,
        stop: int,
        parts: list[bytes],
        key_field: bytes,
        encoded: bool,
        into: list[Packed],
    ) -> None:
        count = stop - begin
        if count == 1:
            into.append(self.plain(rows[begin]))
            return
        fields = [b"\x32" + key_field[1:] if key_field else b"", b"\x58" + encode_varint(count), self._version()]
        if encoded:
            fields.append(b"\x88\x01\x01")
        fields.append(self._ordering(rows[begin], b"\x92\x01"))
        into.append(self._packed(count, fields, b"".join(parts), f"the batch from message {rows[begin]} on"))

    def _packed(self, count: int, fields: list[bytes], payload: bytes, name: str) -> Packed:
        if self._kind != NONE and payload:
            smaller = compress(self._kind, payload)
            if len(smaller) < len(payload):
                fields.append(b"\x40%b\x48%b" % (encode_varint(self._kind), encode_varint(len(payload))))
                payload = smaller
        metadata = b"".join(fields)
        size = len(metadata) + len(payload)
        if size > self._size_max:
            raise ValueError(
                f"{name} has {size} bytes with its metadata, and sending may add {ENVELOPE_MAX};"
                f" the limit is {self._size_max + ENVELOPE_MAX} bytes"
            )
        return Packed(count, size, metadata, payload)

    def _event(self, row: int) -> int:
        return self._time(self._event_ms, row, "event time")

    def _time(self, column: Sequence[int | None] | None, row: int, what: str) -> int:
        time_ms = column[row] if column is not None else None
        if not time_ms:
            return 0
        if time_ms < 0:
            raise ValueError(f"message {row} has the {what} {time_ms} ms, which is before 1970: it cannot be sent")
        return time_ms

    def _version(self) -> bytes:
        version = self.schema_version
        return b"\x82\x01" + encode_varint(len(version)) + version if version else b""

    def _ordering(self, row: int, tag: bytes) -> bytes:
        key = self.ordering_keys[row] if self.ordering_keys is not None else None
        return b"" if key is None else tag + encode_varint(len(key)) + key

    def _pairs(self, row: int, tag: bytes) -> bytes:
        pairs = self._properties[row] if self._properties is not None else None
        return b"".join([_property(tag, name, value) for name, value in pairs]) if pairs else b""


def _key(tag: bytes, key: bytes | str, as_base64: bool) -> tuple[bytes, bool]:
    """Return the field with the key, and whether it is base64."""
    if as_base64:
        text, encoded = b64encode(key.encode() if isinstance(key, str) else key).decode(), True
    else:
        text, encoded = key_text(key)
    raw = text.encode()
    return tag + encode_varint(len(raw)) + raw, encoded


def _property(tag: bytes, name: str, value: str) -> bytes:
    """Return a field with a KeyValue."""
    raw_name, raw_value = name.encode(), value.encode()
    pair = b"\x0a%b%b\x12%b%b" % (encode_varint(len(raw_name)), raw_name, encode_varint(len(raw_value)), raw_value)
    return tag + encode_varint(len(pair)) + pair

"""Comparison of the metadata parser with protobuf over random metadata; and batches are split into their messages."""

from __future__ import annotations

import struct
from base64 import b64encode
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from quire.client.batches import NO_PROPERTIES, Tail, Varints, key_of, properties_of, read_tail, split, varints
from quire.client.errors import CorruptEntryError
from quire.wire.pulsar.frames import encode_varint
from quire.wire.pulsar.PulsarApi_pb2 import MessageMetadata, SingleMessageMetadata
from tests.support.refusals import refuses

Row = tuple[bytes | None, bytes | None, int, list[tuple[str, str]], bytes | None]

words = st.one_of(
    st.text(max_size=8), st.text(min_size=100, max_size=300), st.sampled_from(["", "\n", "\x12\x18", "`", "ä€𝄞"])
)
u64 = st.one_of(st.integers(0, 300), st.integers(0, (1 << 64) - 1))
keys = st.one_of(words, st.binary(max_size=9).map(lambda key: b64encode(key).decode()))


def optional(values):
    return st.one_of(st.none(), values)


singles = st.fixed_dictionaries(
    {"properties": st.lists(st.tuples(words, words), max_size=3)},
    optional={
        "partition_key": keys,
        "event_time": u64,
        "partition_key_b64_encoded": st.booleans(),
        "ordering_key": st.binary(max_size=5),
        "sequence_id": u64,
        "null_value": st.booleans(),
        "null_partition_key": st.booleans(),
        "compacted_out": st.sampled_from([False, False, False, True]),
    },
)


def single(payload: bytes, properties=(), **fields) -> SingleMessageMetadata:
    metadata = SingleMessageMetadata(payload_size=len(payload), **fields)
    for key, value in properties:
        metadata.properties.add(key=key, value=value)
    return metadata


def batch(*messages: tuple[SingleMessageMetadata | bytes, bytes]) -> bytes:
    parts = []
    for metadata, payload in messages:
        raw = metadata if isinstance(metadata, bytes) else metadata.SerializeToString()
        parts.append(struct.pack("!I", len(raw)) + raw + payload)
    return b"".join(parts)


def opened(payload: bytes, count: int) -> tuple[list[Row], list[int]]:
    columns: tuple[list[Any], ...] = ([], [], [], [], [])
    left_out = split(payload, count, *columns)
    assert len({len(column) for column in columns}) == 1
    return list(zip(*columns, strict=True)), left_out


def by_protobuf(payload: bytes, count: int) -> tuple[list[Row], list[int]] | None:
    """Return the result of protobuf alone, None if it cannot be read."""
    rows: list[Row] = []
    left_out: list[int] = []
    for index in range(count):
        if len(payload) < 4:
            return None
        size = struct.unpack_from("!I", payload)[0]
        if len(payload) < 4 + size:
            return None
        try:
            metadata = SingleMessageMetadata.FromString(payload[4 : 4 + size])
        except DecodeError:
            return None
        payload = payload[4 + size :]
        if not 0 <= metadata.payload_size <= len(payload) or not metadata.HasField("payload_size"):
            return None
        value, payload = payload[: metadata.payload_size], payload[metadata.payload_size :]
        if metadata.compacted_out:
            left_out.append(index)
            continue
        rows.append((None if metadata.null_value else value, *fields_of(metadata), ordering_key_of(metadata)))
    return None if payload else (rows, left_out)


def fields_of(metadata) -> tuple[bytes | None, int, list[tuple[str, str]]]:
    return key_of(metadata), metadata.event_time, properties_of(metadata)


def ordering_key_of(metadata) -> bytes | None:
    return metadata.ordering_key if metadata.HasField("ordering_key") else None


@given(st.lists(st.tuples(singles, st.binary(max_size=40)), min_size=1, max_size=4))
def test_a_batch_gives_what_protobuf_reads_of_it(messages) -> None:
    payload = batch(*((single(value, **fields), value) for fields, value in messages))
    assert opened(payload, len(messages)) == by_protobuf(payload, len(messages))


@given(st.data())
def test_a_batch_with_damaged_bytes_gives_what_protobuf_reads_of_it_or_is_corrupt(data) -> None:
    messages = data.draw(st.lists(st.tuples(singles, st.binary(max_size=9)), min_size=1, max_size=3))
    payload = bytearray(batch(*((single(value, **fields), value) for fields, value in messages)))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.just(len(payload)), st.integers(0, len(payload))))
    damaged = bytes(payload[:cut])
    expected = by_protobuf(damaged, len(messages))
    if expected is None:
        refuses(CorruptEntryError, lambda: opened(damaged, len(messages)))
    else:
        assert opened(damaged, len(messages)) == expected


tails = st.fixed_dictionaries(
    {"properties": st.lists(st.tuples(words, words), max_size=3)},
    optional={
        "partition_key": keys,
        "uncompressed_size": st.integers(0, (1 << 32) - 1),
        "event_time": u64,
        "schema_version": st.binary(max_size=200),
        "partition_key_b64_encoded": st.booleans(),
        "ordering_key": st.binary(max_size=200),
        "null_partition_key": st.booleans(),
    },
)


def tail_of(metadata: MessageMetadata) -> bytes:
    """Return the encoded fields behind the first three; `read_tail` begins there."""
    metadata = MessageMetadata.FromString(metadata.SerializeToString())
    for field in ("producer_name", "sequence_id", "publish_time"):
        metadata.ClearField(field)
    return metadata.SerializePartialToString()


def filled(properties=(), **fields) -> MessageMetadata:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, **fields)
    for key, value in properties:
        metadata.properties.add(key=key, value=value)
    return metadata


def read(raw: bytes) -> Tail | None:
    try:
        return read_tail(b"??" + raw + b"payload", 2, 2 + len(raw))
    except (IndexError, UnicodeDecodeError):
        return None


@given(tails)
def test_metadata_read_by_hand_is_what_protobuf_reads(fields) -> None:
    metadata = filled(**fields)
    assert read(tail_of(metadata)) in (None, (*fields_of(metadata), metadata.schema_version, ordering_key_of(metadata)))


@given(tails, st.data())
def test_damaged_metadata_read_by_hand_is_what_protobuf_reads(fields, data) -> None:
    raw = bytearray(tail_of(filled(**fields)))
    for _ in range(data.draw(st.integers(1, 3)) if raw else 0):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    found = read(bytes(raw))
    if found is not None:
        metadata = MessageMetadata.FromString(bytes(raw))
        assert found == (*fields_of(metadata), metadata.schema_version, ordering_key_of(metadata))
        for special in ("num_messages_in_batch", "marker_type", "num_chunks_from_msg", "compression", "null_value"):
            assert not metadata.HasField(special)
        assert not metadata.encryption_keys


@pytest.mark.parametrize(
    "special",
    [
        {"compression": 1},
        {"num_messages_in_batch": 1},
        {"encryption_keys": [{"key": "k", "value": b"v"}]},
        {"marker_type": 0},
        {"null_value": True},
        {"num_chunks_from_msg": 2},
    ],
)
def test_metadata_that_makes_more_than_a_plain_message_is_left_to_protobuf(special) -> None:
    assert read(tail_of(filled(partition_key="k", **special))) is None


def test_the_usual_metadata_is_read_by_hand() -> None:
    """Without this the tests above would also pass if protobuf parsed everything."""
    metadata = filled([("a", "1"), ("b", "")], partition_key="k", event_time=1763737000123, schema_version=b"\0" * 8)
    assert read(tail_of(metadata)) == (b"k", 1763737000123, [("a", "1"), ("b", "")], b"\0" * 8, None)
    java = filled(uncompressed_size=70000, partition_key="aw==", partition_key_b64_encoded=True, ordering_key=b"o")
    assert read(tail_of(java)) == (b"k", 0, NO_PROPERTIES, b"", b"o")


def test_a_key_called_base64_that_is_none_stands_for_itself() -> None:
    found = read(tail_of(filled(partition_key="not base64!", partition_key_b64_encoded=True)))
    assert found == (b"not base64!", 0, [], b"", None)


def test_text_that_is_not_utf_8_is_read_with_replacements() -> None:
    metadata = single(b"v", [("name", "AB")], partition_key="CD").SerializeToString()
    payload = batch((metadata.replace(b"AB", b"\xff\xfe").replace(b"CD", b"\xc3\x28"), b"v"))
    assert opened(payload, 1) == ([(b"v", b"\xc3\x28", 0, [("name", "��")], None)], [])


@pytest.mark.parametrize("last", [b"\x00", b"\x01", b"\x02", b"\x7f"])
def test_numbers_longer_than_64_bits_are_read_as_protobuf_reads_them(last: bytes) -> None:
    payload = batch((b"\x18\x01\x28" + b"\xff" * 9 + last, b"v"))
    expected = by_protobuf(payload, 1)
    if expected is None:
        refuses(CorruptEntryError, lambda: opened(payload, 1))
    else:
        assert opened(payload, 1) == expected
    raw = b"\x60" + b"\xff" * 9 + last
    assert read(raw) is None


def test_messages_compacted_out_are_left_out_and_told() -> None:
    gone = single(b"", compacted_out=True)
    payload = batch((single(b"a"), b"a"), (gone, b""), (single(b"b"), b"b"), (gone, b""))
    rows, left_out = opened(payload, 4)
    assert [row[0] for row in rows] == [b"a", b"b"]
    assert left_out == [1, 3]


@pytest.mark.parametrize(
    ("payload", "count", "words"),
    [
        (batch((single(b"ab"), b"a")), 1, "ends behind its batch"),
        (batch((single(b"ab", null_value=False), b"a")), 1, "payload of 2 bytes"),
        (batch((SingleMessageMetadata(payload_size=-1), b"")), 1, "payload of -1 bytes"),
        (batch((single(b"a"), b"a")), 2, "message 1 of 2"),
        (batch((single(b"a"), b"a"), (single(b"a"), b"a")), 1, "behind the 1 messages"),
        (b"\xff\xff\xff\xff" + b"\x18\x00", 1, "metadata of message 0 of 1 ends"),
        (b"\x00\x00\x00\x02\x18\x80", 1, "unreadable metadata"),
        (b"\x00\x00\x00\x00", 1, "message 0 of 1"),
        (b"\x00", 1, "message 0 of 1"),
        (b"", 0, "a batch of 0"),
        (b"", -1, "a batch of -1"),
        (b"", 1 << 30, "message 0 of 1073741824"),
    ],
)
def test_a_batch_that_does_not_fit_is_corrupt(payload: bytes, count: int, words: str) -> None:
    refuses(CorruptEntryError, lambda: opened(payload, count), words)


@given(st.integers(0, (1 << 63) - 1))
@example(0)
@example((1 << 63) - 1)
def test_varints_are_read_as_they_are_written(value: int) -> None:
    assert varints[encode_varint(value)] == value
    assert Varints()[encode_varint(value)] == value


def test_the_memory_of_varints_is_bounded() -> None:
    kept = Varints()
    for value in range(70_000):
        assert kept[encode_varint(value)] == value
    assert len(kept) <= 1 << 15


def test_messages_without_properties_share_one_list_that_stays_empty() -> None:
    rows, _ = opened(batch((single(b"a"), b"a"), (single(b"b", event_time=5, null_value=True), b"b")), 2)
    assert [row[3] is NO_PROPERTIES for row in rows] == [True, True]
    assert NO_PROPERTIES == []

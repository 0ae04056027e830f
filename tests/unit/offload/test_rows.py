"""Entries as rows and back: whatever the bytes are, they come back."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.client.packing import pack
from quire.offload.rows import (
    CHUNK,
    COMPACTED,
    ENCRYPTED,
    MARKER,
    MESSAGE,
    TRANSACTION,
    UNREADABLE,
    Row,
    entry_of,
    rows_of,
)
from quire.wire.pulsar.PulsarApi_pb2 import LZ4, MessageMetadata, SingleMessageMetadata
from tests.unit.offload.made import batch_of, entry_with
from tests.unit.spark.entries import chunk, plain


def round_trip(entry: bytes) -> list[Row]:
    rows = rows_of(entry)
    assert entry_of(rows) == entry
    return rows


def test_a_plain_message_is_its_header_and_its_value() -> None:
    [row] = round_trip(plain(b"hello"))
    assert (row.kind, row.value, row.stored, row.batch) == (MESSAGE, b"hello", None, None)
    assert row.publish_ms == 1_700_000_000_000


@pytest.mark.parametrize("compression", ["none", "lz4", "zlib", "zstd", "snappy"])
def test_a_batch_has_a_row_a_message_and_its_payload_again_only_if_compressed(compression: str) -> None:
    (packed,) = pack([b"a" * 100, b"", b"c" * 300], batch=True, compression=compression)
    rows = round_trip(packed.encode("producer", 0, 1_700_000_000_000))
    assert [(row.kind, row.value, row.batch) for row in rows] == [
        (MESSAGE, b"a" * 100, 0),
        (MESSAGE, b"", 1),
        (MESSAGE, b"c" * 300, 2),
    ]
    assert (rows[0].stored is None) == (compression == "none")
    assert [row.stored for row in rows[1:]] == [None, None]


def test_keys_properties_and_tombstones_of_a_batch() -> None:
    singles = [
        (SingleMessageMetadata(partition_key="k", event_time=5), b"v"),
        (SingleMessageMetadata(null_value=True), b""),
        (SingleMessageMetadata(compacted_out=True), b""),
        (SingleMessageMetadata(null_value=True), b"not empty"),
    ]
    singles[0][0].properties.add(key="p", value="1")
    rows = round_trip(batch_of(singles[:3]))
    assert (rows[0].key, rows[0].properties, rows[0].event_ms) == (b"k", [("p", "1")], 5)
    assert [(row.kind, row.value) for row in rows[1:]] == [(MESSAGE, None), (COMPACTED, None)]
    assert rows[0].stored is None
    assert round_trip(batch_of(singles))[0].stored is not None, "the value that is shown is not the one that was sent"


def test_entries_that_are_no_message_have_a_row_of_their_kind() -> None:
    assert [row.kind for row in round_trip(chunk(b"piece", 0, 2))] == [CHUNK]
    assert [row.kind for row in round_trip(entry_with(b"", marker_type=1))] == [MARKER]
    secret = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2)
    secret.encryption_keys.add(key="k", value=b"v")
    [row] = round_trip(entry_with(b"secret", like=secret))
    assert (row.kind, row.value) == (ENCRYPTED, None)
    assert [row.kind for row in round_trip(entry_with(b"v", txnid_most_bits=1, txnid_least_bits=2))] == [TRANSACTION]
    for broken in (b"", b"x", plain(b"v")[:9], plain(b"v")[:12], entry_with(b"v", num_messages_in_batch=3)):
        assert [row.kind for row in round_trip(broken)] == [UNREADABLE]
    assert [row.kind for row in round_trip(entry_with(b"v", compression=LZ4, uncompressed_size=9))] == [UNREADABLE]
    assert [row.kind for row in round_trip(entry_with(b"v", uncompressed_size=9))] == [UNREADABLE]
    assert [row.kind for row in round_trip(entry_with(b"v", num_messages_in_batch=100_001))] == [UNREADABLE]


def test_an_entry_with_metadata_of_a_broker_or_bytes_behind_its_batch_comes_back() -> None:
    round_trip(b"\x0e\x02\0\0\0\x03\x08\x05\x10" + plain(b"v"))
    rows = round_trip(batch_of([(SingleMessageMetadata(), b"a"), (SingleMessageMetadata(), b"b")]) + b"more")
    assert [row.value for row in rows] == [b"a", b"b"]
    assert rows[0].stored is not None


@given(st.binary(max_size=80), st.integers(0, 2**32))
def test_any_bytes_come_back(noise: bytes, seed: int) -> None:
    round_trip(noise)
    rng = random.Random(seed)
    entry = bytearray(batch_of([(SingleMessageMetadata(partition_key="k"), noise), (SingleMessageMetadata(), b"b")]))
    for _ in range(3):
        entry[rng.randrange(len(entry))] = rng.randrange(256)
    round_trip(bytes(entry))
    round_trip(bytes(entry[: rng.randrange(len(entry))]))

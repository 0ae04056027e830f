from __future__ import annotations

import struct
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.errors import MalformedMetadataError
from quire.wire.pulsar.metadata import batch_count, batch_counts, metadata_span, peek, sticky_key
from tests.support.effort import effort
from tests.support.pulsar_frames import entry, metadata

u64 = st.integers(0, (1 << 64) - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
all_metadata = st.fixed_dictionaries(
    {"producer_name": texts, "sequence_id": u64, "publish_time": u64},
    optional={
        "partition_key": texts,
        "num_messages_in_batch": st.integers(-(1 << 31), (1 << 31) - 1),
        "event_time": u64,
        "ordering_key": st.binary(max_size=20),
        "deliver_at_time": st.integers(-(1 << 63), (1 << 63) - 1),
        "marker_type": st.integers(0, 20),
        "txnid_least_bits": u64,
        "txnid_most_bits": u64,
        "highest_sequence_id": u64,
        "uuid": texts,
        "chunk_id": st.integers(0, 100),
        "num_chunks_from_msg": st.integers(0, 100),
        "null_value": st.booleans(),
        "schema_version": st.binary(max_size=8),
    },
)


@settings(max_examples=effort(quick=50, full=150), deadline=None)
@given(all_metadata, st.binary(max_size=30))
def test_what_is_read_is_what_protobuf_says(fields: dict[str, Any], payload: bytes) -> None:
    stored = entry(payload, **fields)
    message = pb.MessageMetadata(**fields)

    def field(name: str) -> Any:
        return getattr(message, name) if message.HasField(name) else None

    count = max(1, message.num_messages_in_batch)
    assert batch_count(stored) == count
    assert batch_counts([stored, memoryview(stored)]) == [count, count]
    seen = peek(memoryview(stored))
    assert seen.count == count
    assert seen.batched == message.HasField("num_messages_in_batch")
    assert (seen.producer_name, seen.sequence_id, seen.publish_time) == (
        message.producer_name,
        message.sequence_id,
        message.publish_time,
    )
    assert seen.highest_sequence_id == field("highest_sequence_id")
    assert seen.event_time == field("event_time")
    assert seen.partition_key == (None if field("partition_key") is None else message.partition_key.encode())
    assert seen.ordering_key == field("ordering_key")
    assert seen.deliver_at == field("deliver_at_time")
    assert seen.marker_type == field("marker_type")
    assert (seen.uuid, seen.chunk_id, seen.chunks) == (field("uuid"), field("chunk_id"), field("num_chunks_from_msg"))
    has_transaction = message.HasField("txnid_most_bits") or message.HasField("txnid_least_bits")
    assert seen.transaction == ((message.txnid_most_bits, message.txnid_least_bits) if has_transaction else None)
    assert seen.null_value == message.null_value
    start, stop = metadata_span(stored)
    assert stored[start:stop] == metadata(**fields)


def test_the_sticky_key_is_the_ordering_key_then_the_partition_key_then_the_messages_own() -> None:
    assert sticky_key(entry(ordering_key=b"o", partition_key="p")) == b"o"
    assert sticky_key(entry(ordering_key=b"", partition_key="p")) == b""
    assert sticky_key(entry(partition_key="größe")) == "größe".encode()
    assert sticky_key(entry(partition_key="")) == b""
    assert sticky_key(entry(producer_name="me", sequence_id=7)) == b"me-7"


def test_a_base64_key_is_decoded_and_a_false_one_stands_for_itself() -> None:
    raw = b"\x00\xff\x10key"
    stored = entry(partition_key=b64encode(raw).decode(), partition_key_b64_encoded=True)
    assert sticky_key(stored) == raw
    assert peek(stored).partition_key == raw
    assert sticky_key(entry(partition_key="no base64!", partition_key_b64_encoded=True)) == b"no base64!"


def test_a_letter_that_looks_like_the_tag_of_the_count_does_not_matter() -> None:
    assert batch_count(entry(producer_name="XXX")) == 1
    assert batch_count(entry(producer_name="XXX", num_messages_in_batch=12)) == 12


def test_keys_that_are_not_utf_8_are_taken_as_they_are() -> None:
    meta = metadata(partition_key="abc").replace(b"abc", b"a\xff\xfe")
    stored = struct.pack("!HII", 0x0E01, 0, len(meta)) + meta
    assert sticky_key(stored) == b"a\xff\xfe"
    assert peek(stored).partition_key == b"a\xff\xfe"


def test_entries_of_other_brokers_are_read_with_and_without_their_parts() -> None:
    meta = metadata(num_messages_in_batch=5)
    sized = struct.pack("!I", len(meta)) + meta
    broker = struct.pack("!HI", 0x0E02, 4) + b"\x08\x01\x10\x02"
    for stored in (
        sized,
        struct.pack("!HI", 0x0E01, 9) + sized,
        broker + sized,
        broker + struct.pack("!HI", 0x0E01, 9) + sized,
    ):
        assert batch_count(stored) == 5
        start, stop = metadata_span(stored)
        assert stored[start:stop] == meta


def test_an_entry_cut_anywhere_in_its_metadata_is_malformed() -> None:
    meta = metadata(partition_key="k", num_messages_in_batch=5)
    for stored in (
        struct.pack("!HII", 0x0E01, 0, len(meta)) + meta,
        struct.pack("!HI", 0x0E02, 4) + b"\x08\x01\x10\x02" + struct.pack("!HII", 0x0E01, 0, len(meta)) + meta,
    ):
        for cut in range(len(stored)):
            for read in (batch_count, peek, sticky_key):
                with pytest.raises(MalformedMetadataError):
                    read(stored[:cut])
            assert batch_counts([stored[:cut], stored]) == [1, 5]


@settings(max_examples=effort(quick=50, full=150), deadline=None)
@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_read_or_malformed(noise: bytes, framed: bool) -> None:
    stored = struct.pack("!HII", 0x0E01, 0, len(noise)) + noise if framed else noise
    for read in (batch_count, peek, sticky_key):
        try:
            read(stored)
        except MalformedMetadataError:
            pass

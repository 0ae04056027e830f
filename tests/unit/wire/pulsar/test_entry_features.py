"""Covers quire.wire.pulsar.entry_features."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar import entry_features
from quire.wire.pulsar.entry_features import (
    BATCH,
    BROKER_METADATA,
    CHUNK,
    DELAYED,
    MARKER,
    PUBLISHED_ALIKE,
    TRANSACTION,
    UNREADABLE,
    EntryFeatures,
    features_of,
    without_broker_metadata,
)
from tests.support.pulsar_frames import entry, entry_of

ALIKE = BATCH | CHUNK


def with_broker_metadata(whole: bytes) -> bytes:
    return b"\x0e\x02" + struct.pack("!I", 3) + b"xyz" + whole


def test_each_feature_is_found() -> None:
    assert features_of(entry()) == 0
    assert (
        features_of(entry(partition_key="Xx", ordering_key=b"\x58", properties=[pb.KeyValue(key="k", value="v")])) == 0
    )
    assert features_of(entry(num_messages_in_batch=1)) == BATCH
    assert features_of(entry(uuid="u", chunk_id=0, num_chunks_from_msg=2)) == CHUNK
    assert features_of(entry(deliver_at_time=0)) == DELAYED
    assert features_of(entry(marker_type=0)) == MARKER
    assert features_of(entry(txnid_most_bits=0)) == features_of(entry(txnid_least_bits=0)) == TRANSACTION
    assert features_of(with_broker_metadata(entry(num_messages_in_batch=2))) == BROKER_METADATA | BATCH
    assert without_broker_metadata(with_broker_metadata(entry())) == entry()
    assert without_broker_metadata(entry()) == entry()


def test_metadata_that_a_client_cannot_read_is_unreadable() -> None:
    assert features_of(b"") == features_of(b"\x0e") == features_of(b"\x0e\x01\0\0\0\0\0\0\0\x09") == UNREADABLE
    assert features_of(entry_of(b"\xff\xff\xff")) == UNREADABLE
    assert features_of(entry_of(b"")) == UNREADABLE, "required fields are missing"
    assert features_of(entry_of(pb.MessageMetadata(producer_name="p").SerializePartialToString())) == UNREADABLE
    bad = entry()[:-1] + b"?"
    assert features_of(bad) == 0
    assert features_of(bad, check=True) == UNREADABLE
    assert EntryFeatures().unusual([entry(), bad]) == [(1, UNREADABLE)]


def learned(*like: bytes) -> EntryFeatures:
    """Return features that have patterns for entries like these."""
    found = EntryFeatures()
    for each in like:
        found.union([each] * 40)
    assert found._patterns
    return found


def test_a_pattern_takes_no_odd_entry_for_a_usual_one() -> None:
    usual = entry(sequence_id=5)
    features = learned(usual)
    same_size = bytearray(usual)
    same_size[10:] = b"\xff" * len(usual[10:])
    assert features.union([usual, entry(sequence_id=99)]) == 0
    assert features.union([usual, bytes(same_size)]) == UNREADABLE
    broken = bytearray(usual)
    broken[-8] |= 0x80  # the last number of the metadata goes on into the payload
    assert features.union([bytes(broken)]) == UNREADABLE
    assert features.unusual([usual, usual[:-1] + b"?", with_broker_metadata(usual)]) == [
        (1, UNREADABLE),
        (2, BROKER_METADATA),
    ]


def test_a_run_is_compared_as_a_whole_and_no_odd_entry_hides_in_it() -> None:
    usual = entry(sequence_id=5)
    run = [entry(sequence_id=number) for number in range(60)]
    stop = 10 + usual[9]
    same_size = usual[:10] + b"\xff" * len(usual[10:])
    halves = [usual[:6] + usual[6:20], usual[:6] + usual[20:stop]]
    odd = {
        UNREADABLE: [[same_size], [usual[:12]], [b""], halves],
        DELAYED: [[entry(sequence_id=5, deliver_at_time=7)]],
        0: [[entry(sequence_id=500)], [entry(sequence_id=5, partition_key="k")]],
    }
    for expected, parts in odd.items():
        for part in parts:
            features = learned(usual)
            assert features.union(run) == 0
            assert features._runs, "the run has matched"
            assert features.union([*run[:20], *part, *run[20:]]) == expected
            assert features.union(run) == 0


metadata = st.fixed_dictionaries(
    {
        "producer_name": st.sampled_from(["p", "standalone-0-1"]),
        "sequence_id": st.integers(0, 1 << 20),
        "publish_time": st.integers(1 << 40, (1 << 40) + 5),
    },
    optional={
        "uncompressed_size": st.integers(0, 300),
        "partition_key": st.sampled_from(["a", "b", "cc", "X"]),
        "num_messages_in_batch": st.integers(1, 200),
        "uuid": st.just("u"),
        "deliver_at_time": st.integers(-5, 5),
        "event_time": st.integers(0, 1 << 33),
        "properties": st.just([pb.KeyValue(key="k", value="v")]),
    },
)
broken = st.tuples(metadata, st.integers(0, 40), st.integers(0, 255))


@given(st.lists(st.one_of(metadata, broken), min_size=1, max_size=60), st.integers(1, 40))
def test_patterns_answer_as_protobuf_does(kinds: list[Any], run: int) -> None:
    """Each entry is repeated with another number, so that patterns are made of most of them."""
    entries: list[bytes] = []
    for kind in kinds:
        fields, at, value = kind if isinstance(kind, tuple) else (kind, -1, 0)
        for number in range(20):
            raw = bytearray(
                pb.MessageMetadata(**{**fields, "sequence_id": fields["sequence_id"] ^ number}).SerializeToString()
            )
            if 0 <= at < len(raw):
                raw[at] = value
            entries.append(entry_of(bytes(raw)))
    published, stored, with_delays = EntryFeatures(), EntryFeatures(), EntryFeatures(PUBLISHED_ALIKE)
    for start in range(0, len(entries), run):
        part = entries[start : start + run]
        each = [features_of(one) for one in part]
        union = 0
        for one in each:
            union |= one
        found = published.union(part)
        assert found & ~ALIKE == union & ~ALIKE
        assert found & union & ALIKE == union & ALIKE
        found = with_delays.union(part)
        assert found & ~PUBLISHED_ALIKE == union & ~PUBLISHED_ALIKE
        assert found & union == union
        assert stored.unusual(part) == [(index, one) for index, one in enumerate(each) if one & ~ALIKE]


def test_delayed_messages_that_are_published_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []

    def counting(one: bytes, *, check: bool = False) -> int:
        read.append(one)
        return features_of(one, check=check)

    monkeypatch.setattr(entry_features, "features_of", counting)
    entries = [entry(sequence_id=number, deliver_at_time=1_700_000_000_000 + number) for number in range(200, 4200)]
    published = EntryFeatures(PUBLISHED_ALIKE)
    for start in range(0, len(entries), 500):
        assert published.union(entries[start : start + 500]) == DELAYED
    assert len(read) < 600

"""Sequence ids by producer name, and claims, as pure values: their bounds."""

from __future__ import annotations

import pytest

from broker.errors import ProducerBusyError
from broker.topics.deduplication.sequences import SNAPSHOT_BYTES_MAX, Sequences
from broker.topics.producer_access import WAITING_MAX, Access, Claim
from quire.wire.pulsar import PulsarApi_pb2 as pb


def stored(sequences: Sequences, name: str, sequence_id: int) -> None:
    assert sequences.push(name, sequence_id, sequence_id)
    sequences.stored(name, sequence_id, sequence_id)


def test_of_too_many_names_those_that_left_first_are_forgotten() -> None:
    sequences = Sequences(3)
    stored(sequences, "connected", 1)
    for number in range(10):
        stored(sequences, f"p{number}", number)
        sequences.left(f"p{number}", number)
    assert sequences.persisted == {"connected": 1, "p8": 8, "p9": 9}
    assert sequences.pushed == sequences.persisted
    assert sequences.purge(before=9) == 1
    assert sequences.snapshot() == {"connected": 1, "p9": 9}


def test_a_producer_whose_sends_are_on_their_way_is_not_forgotten() -> None:
    sequences = Sequences(1)
    assert sequences.push("p", 5, 5)
    sequences.left("p", 0)
    sequences.recover([("q", 1)], 1)
    assert sequences.purge(before=100) == 1
    assert sequences.pushed == {"p": 5}
    sequences.stored("p", 5, 5)
    assert sequences.purge(before=100) == 1
    assert sequences.pushed == {}


def test_a_snapshot_prefers_connected_producers() -> None:
    sequences = Sequences(2)
    stored(sequences, "gone", 1)
    for name in ("a", "b"):
        stored(sequences, name, 2)
    sequences._left_at["gone"] = 0.0
    assert sequences.snapshot() == {"a": 2, "b": 2}


def test_a_snapshot_fits_a_node_however_long_the_names_are() -> None:
    sequences = Sequences(10_000)
    for number in range(1000):
        stored(sequences, f"{number}-{'ä' * 1000}", number)
    names = sequences.snapshot()
    assert 0 < sum(len(name.encode()) for name in names) <= SNAPSHOT_BYTES_MAX
    assert len(names) == SNAPSHOT_BYTES_MAX // 2027


def test_a_run_is_taken_as_a_whole_only_if_all_of_it_is_new_and_without_gaps() -> None:
    sequences = Sequences(10)
    assert sequences.push_all("p", [3, 4, 5])
    assert sequences.pushed == {"p": 5}
    for ids in ([5], [5, 6], [6, 8], [6, 7, 7, 9], [8, 7, 9], [1 << 63]):
        assert not sequences.push_all("p", ids)
    assert sequences.pushed == {"p": 5}
    assert sequences.push_all("p", [9])


def test_an_id_above_the_originals_signed_numbers_is_negative() -> None:
    sequences = Sequences(10)
    stored(sequences, "p", (1 << 64) - 1)
    assert sequences.snapshot() == {"p": -1}
    assert not sequences.push("p", (1 << 64) - 2, (1 << 64) - 2)
    assert sequences.push("p", 0, 0)


def test_so_many_producers_wait_at_most() -> None:
    access = Access()
    claims = [Claim(f"p{number}", None, lambda: None) for number in range(WAITING_MAX + 2)]
    assert access.claim(claims[0], pb.WaitForExclusive, [])
    assert not any(access.claim(claim, pb.WaitForExclusive, ["p0"]) for claim in claims[1:-1])
    with pytest.raises(ProducerBusyError):
        access.claim(claims[-1], pb.WaitForExclusive, ["p0"])
    access.withdraw(claims[1], ["p0"])
    assert not access.claim(claims[-1], pb.WaitForExclusive, ["p0"])

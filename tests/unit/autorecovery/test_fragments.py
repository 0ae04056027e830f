"""Fragments: the entries that each bookie should have."""

from __future__ import annotations

import random

import pytest

from autorecovery.fragments import LedgerFragment, fragments_of, must_be_closed
from quire.metadata.ledgers import Fragment, LedgerMetadata, LedgerState


def metadata(*fragments: tuple[int, tuple[str, ...]], last: int | None = None, quorums=(3, 2, 2)) -> LedgerMetadata:
    return LedgerMetadata(
        ensemble_size=quorums[0],
        write_quorum=quorums[1],
        ack_quorum=quorums[2],
        fragments=tuple(Fragment(*each) for each in fragments),
        state=LedgerState.OPEN if last is None else LedgerState.CLOSED,
        last_entry_id=-1 if last is None else last,
    )


def fragment(first: int, last: int, size: int = 5, write_quorum: int = 3) -> LedgerFragment:
    bookies = tuple(f"b{each}" for each in range(size))
    return LedgerFragment(ledger_id=1, first=first, last=last, bookies=bookies, write_quorum=write_quorum, closed=True)


@pytest.mark.parametrize(("size", "write_quorum"), [(1, 1), (3, 3), (3, 2), (5, 3), (5, 1)])
def test_the_members_shares_are_the_write_sets_of_the_entries(size: int, write_quorum: int) -> None:
    for first in range(6):
        for last in range(first - 1, first + 9):
            made = fragment(first, last, size, write_quorum)
            shares = [set(made.entries_of(index)) for index in range(size)]
            for entry_id in range(first, last + 1):
                holders = {index for index in range(size) if entry_id in shares[index]}
                assert holders == set(made.striping.write_set(entry_id))
            for index, share in enumerate(shares):
                assert share <= set(range(first, last + 1))
                assert made.span_of(index) == ((min(share), max(share)) if share else None)
            assert set(made.entries_of_any([0, size - 1])) == shares[0] | shares[size - 1]
            assert made.empty is (last < first)


def test_a_sample_has_the_first_the_last_and_its_share_and_nobody_elses_entries() -> None:
    rng = random.Random(1)
    made = fragment(7, 1006)
    own = list(made.entries_of(2))
    for percentage in (0, 1, 10, 50, 99, 100):
        sample = list(made.sample_of(2, percentage, rng))
        assert sample == sorted(set(sample))
        assert set(sample) <= set(own)
        assert (sample[0], sample[-1]) == (own[0], own[-1])
        assert len(own) * percentage // 100 <= len(sample) <= len(own) * percentage // 100 + 2
    assert list(fragment(7, 7, 3, 3).sample_of(0, 0, rng)) == [7]
    assert list(fragment(7, 6, 3, 3).sample_of(0, 100, rng)) == []


def test_all_fragments_but_the_last_of_an_open_ledger_are_closed() -> None:
    stored = metadata((0, ("a", "b", "c")), (10, ("a", "b", "d")))
    assert [(each.first, each.last, each.closed) for each in fragments_of(4, stored, 15)] == [
        (0, 9, True),
        (10, 15, False),
    ]
    assert [(each.first, each.last, each.closed) for each in fragments_of(4, stored)] == [(0, 9, True), (10, 9, False)]
    closed = metadata((0, ("a", "b", "c")), (10, ("a", "b", "d")), last=12)
    assert [(each.first, each.last, each.closed) for each in fragments_of(4, closed)] == [(0, 9, True), (10, 12, True)]


def test_a_ledger_must_be_closed_only_if_its_open_end_lost_a_member() -> None:
    stored = metadata((0, ("a", "b", "c")), (10, ("a", "b", "d")))
    everybody = {"a", "b", "c", "d"}
    assert not must_be_closed(stored, 9, everybody)
    assert must_be_closed(stored, 9, everybody - {"d"})
    assert not must_be_closed(stored, 9, everybody - {"c"})
    assert must_be_closed(stored, 8, everybody - {"c"})  # entry 9 may still be written again
    assert not must_be_closed(stored, 9, None)
    assert not must_be_closed(metadata((0, ("a", "b", "c")), last=3), 3, set())

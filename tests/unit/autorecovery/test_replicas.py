from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autorecovery.fragments import fragments_of
from autorecovery.replicas import Missing, Shortage, compare, expected_bits, listed_bits
from quire.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from quire.wire.bookkeeper.availability import Availability


def closed(
    last: int, *ensembles: tuple[int, tuple[str, ...]], write_quorum: int = 3, ack_quorum: int = 2
) -> LedgerMetadata:
    return LedgerMetadata(
        ensemble_size=len(ensembles[0][1]),
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        fragments=tuple(Fragment(first, bookies) for first, bookies in ensembles),
        state=LedgerState.CLOSED,
        last_entry_id=last,
    )


ABC = ("a", "b", "c")


def lists(**entry_ids: Iterable[int]) -> dict[str, Availability]:
    return {name: Availability.of(list(ids)) for name, ids in entry_ids.items()}


def test_a_ledger_with_all_its_copies_lacks_nothing() -> None:
    found = compare(closed(9, (0, ABC)), lists(a=range(10), b=range(10), c=range(12)))
    assert (found.shortage, found.missing) == (Shortage.NONE, ())


@pytest.mark.parametrize(
    ("there", "shortage"),
    [
        ({"a": 9, "b": 10, "c": 10}, Shortage.BELOW_WRITE_QUORUM),
        ({"a": 9, "b": 9, "c": 10}, Shortage.BELOW_ACK_QUORUM),
        ({"a": 9, "b": 9, "c": 9}, Shortage.NO_REPLICA),
    ],
)
def test_the_entry_with_the_fewest_copies_counts(there: dict[str, int], shortage: Shortage) -> None:
    found = compare(closed(9, (0, ABC)), lists(**{name: range(count) for name, count in there.items()}))
    assert found.shortage is shortage
    assert found.missing == tuple(Missing(name, 1, 9) for name, count in there.items() if count == 9)


def test_a_bookie_that_did_not_answer_lacks_nothing() -> None:
    assert compare(closed(9, (0, ABC)), lists(a=range(10))).shortage is Shortage.NONE


def test_a_bookie_is_held_to_what_its_stripe_and_its_fragment_want_of_it() -> None:
    metadata = closed(9, (0, ABC), (6, ("a", "b", "d")), write_quorum=2)
    # Entries of a bookie at index i: those e with (i - e) mod 3 < 2.
    every = lists(a=[0, 2, 3, 5, 6, 8, 9], b=[0, 1, 3, 4, 6, 7, 9], c=[1, 2, 4, 5], d=[7, 8])
    assert compare(metadata, every).shortage is Shortage.NONE
    without = {**every, "c": Availability.of([1, 4, 5])}
    assert compare(metadata, without).missing == (Missing("c", 1, 2),)
    without = {**every, "d": Availability.of([1, 2, 4, 5])}
    assert compare(metadata, without).missing == (Missing("d", 2, 7),)


def test_an_empty_last_fragment_wants_nothing() -> None:
    metadata = closed(9, (0, ABC), (10, ("a", "b", "d")))
    everything = lists(a=range(10), b=range(10), c=range(10), d=[])
    assert compare(metadata, everything).shortage is Shortage.NONE


@given(
    st.integers(1, 6).flatmap(lambda size: st.tuples(st.just(size), st.integers(1, size))),
    st.integers(0, 50),
    st.integers(0, 60),
)
def test_what_is_expected_is_what_is_striped(quorums: tuple[int, int], first: int, count: int) -> None:
    size, write_quorum = quorums
    bookies = tuple(f"b{index}" for index in range(size))
    metadata = closed(first + count, (0, bookies), write_quorum=write_quorum, ack_quorum=1)
    fragment = fragments_of(0, metadata)[0]
    for index in range(size):
        bits = expected_bits(fragment, index)
        assert [bit for bit in range(bits.bit_length()) if bits >> bit & 1] == list(fragment.entries_of(index))


@given(st.sets(st.integers(0, 80)), st.integers(0, 80), st.integers(0, 80))
def test_what_is_listed_is_cut_to_the_fragment(entry_ids: set[int], first: int, count: int) -> None:
    bits = listed_bits(Availability.of(sorted(entry_ids)), first, first + count)
    found = [first + bit for bit in range(bits.bit_length()) if bits >> bit & 1]
    assert found == sorted(each for each in entry_ids if first <= each <= first + count)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 30), st.integers(0, 90), st.integers(0, 90))
def test_periods_are_cut_too(size: int, gap: int, start: int, first: int, count: int) -> None:
    entry_ids = [start + turn * (size + gap) + each for turn in range(12) for each in range(size)]
    listed = Availability.of(entry_ids)
    bits = listed_bits(listed, first, first + count)
    found = [first + bit for bit in range(bits.bit_length()) if bits >> bit & 1]
    assert found == [each for each in entry_ids if first <= each <= first + count]

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from cursors.ack_ranges import CHUNK, FULL, AckRanges

ENTRY = st.integers(0, 4 * CHUNK)
LEDGER = st.integers(1, 3)
CALL = st.one_of(
    st.tuples(st.just("one"), LEDGER, ENTRY, st.just(0)),
    st.tuples(st.just("range"), LEDGER, ENTRY, st.integers(0, 3 * CHUNK)),
    st.tuples(st.just("forget"), LEDGER, ENTRY, st.just(0)),
)


def model_ranges(model: set[tuple[int, int]]) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    for ledger, entry in sorted(model):
        if found and found[-1][0] == ledger and found[-1][2] == entry - 1:
            found[-1] = (ledger, found[-1][1], entry)
        else:
            found.append((ledger, entry, entry))
    return found


@given(st.lists(CALL, max_size=12), LEDGER, ENTRY, ENTRY)
def test_it_holds_what_a_set_would_hold(
    calls: list[tuple[str, int, int, int]], ledger: int, probe: int, other: int
) -> None:
    ranges = AckRanges()
    model: set[tuple[int, int]] = set()
    for kind, where, first, length in calls:
        if kind == "one":
            assert ranges.add_one(where, first) == ((where, first) not in model)
            model.add((where, first))
        elif kind == "range":
            fresh = {(where, entry) for entry in range(first, first + length + 1)} - model
            assert ranges.add(where, first, first + length) == len(fresh)
            model |= fresh
        else:
            ranges.forget_through(where, first)
            model = {place for place in model if place > (where, first)}
        assert ranges.count == len(model)
        assert ranges.range_count == len(model_ranges(model))
    expected = model_ranges(model)
    assert list(ranges.ranges()) == expected
    assert ranges.contains(ledger, probe) == ((ledger, probe) in model)
    assert ranges.count_from(ledger, probe) == len([place for place in model if place >= (ledger, probe)])
    missing = next(entry for entry in range(probe, 10 * CHUNK) if (ledger, entry) not in model)
    assert ranges.first_missing(ledger, probe) == missing
    low, high = min(probe, other), max(probe, other)
    present = [entry for entry in range(low, high + 1) if (ledger, entry) in model]
    assert ranges.first_present(ledger, low, high) == (present[0] if present else None)
    gaps = [entry for first, count in ranges.missing_runs(ledger, low, high) for entry in range(first, first + count)]
    assert gaps == [entry for entry in range(low, high + 1) if (ledger, entry) not in model]


@given(st.sets(st.tuples(LEDGER, ENTRY), max_size=40))
def test_words_and_chunks_tell_the_whole_set(model: set[tuple[int, int]]) -> None:
    ranges = AckRanges()
    for ledger, entry in model:
        ranges.add_one(ledger, entry)
    by_words, by_chunks = AckRanges(), AckRanges()
    for ledger in ranges.ledgers():
        words = ranges.words(ledger)
        assert words[-1] != 0
        by_words.add_words(ledger, words)
        for number, bitmap in ranges.chunks(ledger):
            by_chunks.add_chunk(ledger, number, bitmap)
    for copy in (by_words, by_chunks):
        assert list(copy.ranges()) == list(ranges.ranges())
        assert copy.count == len(model)
        assert copy.range_count == len(model_ranges(model))


def test_a_word_with_its_highest_bit_is_negative_as_in_protobuf() -> None:
    ranges = AckRanges()
    ranges.add_one(1, 63)
    assert ranges.words(1) == [-(1 << 63)]


def test_wholly_acknowledged_chunks_share_one_bitmap() -> None:
    ranges = AckRanges()
    ranges.add(1, 1, 1_000_000)
    chunks = ranges.chunks(1)
    assert sum(bitmap is FULL for _, bitmap in chunks) == len(chunks) - 2


def test_shuffled_acks_with_a_hundred_thousand_holes_end_in_nothing() -> None:
    order = list(range(200_000))
    random.Random(3).shuffle(order)
    ranges = AckRanges()
    for entry in order[:100_000]:
        ranges.add_one(1, entry)
    assert ranges.count == 100_000
    assert 1000 < ranges.range_count == len(list(ranges.ranges()))
    for entry in order[100_000:]:
        ranges.add_one(1, entry)
    assert list(ranges.ranges()) == [(1, 0, 199_999)]
    ranges.forget_through(1, 199_999)
    assert not ranges
    assert ranges.ledgers() == []

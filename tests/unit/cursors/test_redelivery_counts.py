"""Redelivery counts of very many entries cost as much as those of a few thousand when they are stored."""

from __future__ import annotations

from cursors.redelivery_counts import LOOKED_AT_MAX, STORED_MAX, RedeliveryCounts
from quire.ledger.position import Position


def test_however_many_counts_there_are_few_are_looked_at_to_drop_acknowledged_ones() -> None:
    counts, asked = RedeliveryCounts(), list[Position]()
    everything = [Position(1, number) for number in range(5 * LOOKED_AT_MAX)]
    for position in everything:
        counts.increment(position)

    def is_over(position: Position) -> bool:
        asked.append(position)
        return position.entry_id % 2 == 0

    counts.forget_some(is_over)
    assert len(asked) == 2 * LOOKED_AT_MAX
    ends = [*everything[:LOOKED_AT_MAX], *everything[-LOOKED_AT_MAX:]]
    assert asked == [*everything[:LOOKED_AT_MAX], *reversed(ends[LOOKED_AT_MAX:])]
    assert [each for each in ends if each in counts.values] == ends[1::2]
    assert len(counts.values) == 4 * LOOKED_AT_MAX
    assert counts.to_store() == [*counts.values][-STORED_MAX:]
    assert counts.take_changed() == counts.to_store()


def test_of_few_counts_all_acknowledged_ones_are_dropped() -> None:
    counts = RedeliveryCounts()
    for number in range(10):
        counts.increment(Position(1, number))
    counts.forget_some(lambda position: position.entry_id < 7)
    assert counts.to_store() == [Position(1, 7), Position(1, 8), Position(1, 9)]

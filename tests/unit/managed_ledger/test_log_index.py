from __future__ import annotations

import pytest

from managed_ledger.log_index import LogIndex
from quire.ledger.position import EARLIEST, LATEST, Position
from tests.unit.cursors.fake_log import fake_log

INDEX = fake_log((2, 4), (5, 3), (9, 2))
ALL = [Position(ledger, entry) for ledger, count in ((2, 4), (5, 3), (9, 2)) for entry in range(count)]
PROBES = [Position(ledger, entry) for ledger in (1, 2, 3, 5, 7, 9, 11) for entry in (-1, 0, 1, 2, 3, 4, 9)]
PROBES += [EARLIEST, LATEST]


@pytest.mark.parametrize("probe", PROBES, ids=str)
def test_the_next_position_is_the_first_entry_after_it(probe: Position) -> None:
    after = [place for place in ALL if place > probe]
    found = INDEX.next_position(probe)
    if after:
        assert found == after[0]
    else:
        assert found > INDEX.last_confirmed
        assert found.ledger_id in (9, probe.ledger_id)


@pytest.mark.parametrize("probe", PROBES, ids=str)
def test_the_previous_position_is_the_last_entry_before_it(probe: Position) -> None:
    before = [place for place in ALL if place < probe]
    assert INDEX.previous_position(probe) == (before[-1] if before else Position(2, -1))


@pytest.mark.parametrize("probe", PROBES, ids=str)
def test_what_is_readable_is_the_first_entry_at_or_after_it(probe: Position) -> None:
    after = [place for place in ALL if place >= probe]
    assert INDEX.readable(probe) == (after[0] if after else None)


@pytest.mark.parametrize("after", PROBES, ids=str)
def test_counts_are_exact(after: Position) -> None:
    for upto in PROBES:
        expected = sum(after < place <= upto for place in ALL)
        assert INDEX.count_between(after, upto) == expected
    assert INDEX.count() == len(ALL)


def test_entries_of_the_current_ledger_count_as_they_are_confirmed() -> None:
    index = fake_log((2, 4), (5, 0))
    assert (index.last_confirmed, index.last_entry_of(5), index.count()) == (Position(2, 3), -1, 4)
    assert index.next_position(Position(2, 3)) == Position(5, 0)
    assert index.readable(Position(5, 0)) is None
    index.last_confirmed = Position(5, 6)
    assert (index.last_entry_of(5), index.count()) == (6, 11)
    assert index.readable(Position(2, 9)) == Position(5, 0)
    assert index.previous_position(Position(9, 0)) == Position(5, 6), "a place that only the next owner knows"
    assert index.last_entry_of(3) is None


def test_a_log_without_entries_has_a_first_place() -> None:
    index = fake_log((7, 0))
    assert index.first_position() == Position(7, 0)
    assert index.previous_position(index.first_position()) == Position(7, -1)
    assert index.next_position(Position(7, -1)) == Position(7, 0)
    assert LogIndex().count() == 0

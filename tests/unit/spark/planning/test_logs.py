from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.spark.errors import StatsError
from quire.spark.offsets import Place
from quire.spark.planning.logs import LedgerSize, LostEntries, PartitionLog
from quire.spark.reading.range_check import shown
from tests.support.datadriven import Line
from tests.support.dialogues import Dialogue, dialogues
from tests.support.refusals import refuses
from tests.unit.spark.logs_of_brokers import NAME, SIZE, log_from, log_of, pair, stats_of

# Answers of the broker


def test_the_last_ledger_is_listed_empty_and_has_its_numbers_elsewhere() -> None:
    stats = {
        "currentLedgerEntries": 9,
        "currentLedgerSize": 573,
        "lastConfirmedEntry": "4:8",
        "ledgers": [
            {"ledgerId": 2, "entries": 10, "size": 1143, "offloaded": False},
            {"ledgerId": 3, "entries": 10, "size": 620, "offloaded": False},
            {"ledgerId": 4, "entries": 0, "size": 0, "offloaded": False},
        ],
    }
    log = PartitionLog.from_internal_stats(NAME, stats)
    assert log.ledgers == (LedgerSize(2, 10, 1143), LedgerSize(3, 10, 620), LedgerSize(4, 9, 573))
    assert (log.earliest(), log.end()) == (Place(2, 0), Place(4, 9))


def test_entries_that_are_not_confirmed_yet_do_not_count() -> None:
    stats = stats_of((2, 10), (3, 8), last=(3, 5))
    assert PartitionLog.from_internal_stats(NAME, stats).ledgers[-1] == LedgerSize(3, 6, 6 * SIZE)


def test_a_list_that_is_older_than_the_last_confirmed_entry_must_be_asked_again() -> None:
    for settled in (False, True):
        with pytest.raises(StatsError, match="9:3 is confirmed"):
            PartitionLog.from_internal_stats(NAME, stats_of((2, 10), last=(9, 3)), settled=settled)


def test_an_empty_ledger_in_the_middle_must_be_asked_again_and_is_then_believed() -> None:
    stats = stats_of((2, 10), (3, 0), (7, 5))
    refuses(StatsError, lambda: PartitionLog.from_internal_stats(NAME, stats), "ledger 3 is shown empty")
    assert PartitionLog.from_internal_stats(NAME, stats, settled=True).entries_of(3) == 0
    assert log_of((2, 10), (3, 5), last=(2, 7)).entries_of(3) == 0


def test_a_terminated_log_is_like_any_other() -> None:
    log = PartitionLog.from_internal_stats(NAME, {**stats_of((26, 3)), "state": "Terminated"})
    assert log.end() == Place(26, 3)


def test_a_terminated_log_that_was_trimmed_wholly_still_knows_its_end() -> None:
    stats = {"currentLedgerEntries": 0, "currentLedgerSize": 0, "lastConfirmedEntry": "26:2", "ledgers": []}
    log = PartitionLog.from_internal_stats(NAME, stats)
    assert (log.earliest(), log.end()) == (Place(26, 3), Place(26, 3))
    assert log.missing_before(Place(26, 3)) is None
    assert log.missing_before(Place(26, 2)) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"ledgers": None},
        {"ledgers": [{"ledgerId": 2}]},
        {"ledgers": [{"ledgerId": 2, "entries": "ten", "size": 1}]},
        {"ledgers": [{"ledgerId": 2, "entries": -1, "size": 1}]},
        {"lastConfirmedEntry": "there"},
        {"lastConfirmedEntry": "-1:-1", "ledgers": []},
        {"currentLedgerEntries": "9"},
    ],
)
def test_an_answer_that_cannot_be_used_is_told_with_the_topics_name(change: dict[str, object]) -> None:
    refuses(StatsError, lambda: PartitionLog.from_internal_stats(NAME, {**stats_of((2, 10)), **change}), NAME)


# Places, the hold, deleted entries


@pytest.mark.parametrize("dialogue", dialogues(Path(__file__).parent / "testdata" / "logs.txt"))
def test_a_log(dialogue: Dialogue) -> None:
    """`log 2:10,3:0` has ledgers 2 and 3 with 10 and 0 entries, the last one open."""
    log = log_from(dialogue.command.word())

    def answer(step: Line) -> str:
        place = Place.parse(step.word()) if step.words else log.earliest()
        match step.name:
            case "span":
                return f"{place} to {log.end()}, {log.count_between(place, log.end())} entries"
            case "canonical":
                return str(log.canonical(place))
            case "between":
                return shown(log.between(place, Place.parse(step.word())))
            case "hold":
                return "{}:{}".format(*log.mark_delete_for(log.hold_at(place, step.option_number("behind"))))
            case "mark":
                return "{}:{}".format(*log.mark_delete_for(place))
            case "missing":
                seen, held = step.option("seen", ""), step.option("held", "")
                lost = log.missing_before(
                    place, mark_delete=pair(held) if held else None, seen=log_from(seen) if seen else None
                )
                if lost is None:
                    return "nothing"
                return f"{lost.start} to {lost.end}, {lost.entries} entries, {lost.reason}"
        raise step.unknown()

    dialogue.check(answer)


def test_a_loss_names_topic_range_and_option_and_without_an_end_from_where_on() -> None:
    lost = log_of((2, 10)).missing_before(Place(1, 4))
    assert lost is not None
    assert str(lost.error()) == (
        f"data loss in {NAME}: the entries from 1:4 up to 2:0 cannot be read (how many is not known): ledger 1 was "
        "deleted. With the option failOnDataLoss=false the query skips them"
    )
    for lost in (LostEntries.topic(NAME, Place(3, 4)), log_of((2, 10)).missing_before(Place(8, 0))):
        assert lost is not None
        assert f"the entries from {lost.start} on cannot be read" in str(lost)


# Properties

LOGS = st.lists(st.integers(0, 6), min_size=1, max_size=6).map(
    lambda entries: log_of(*((3 * number + 1, each) for number, each in enumerate(entries)))
)


def places_of(log: PartitionLog) -> list[Place]:
    return [Place(each.ledger_id, n) for each in log.ledgers for n in range(each.entries + 1)]


@settings(deadline=None)
@given(LOGS)
def test_places_are_equal_in_name_exactly_if_no_entry_lies_between(log: PartitionLog) -> None:
    for one in places_of(log):
        for other in places_of(log):
            same = log.count_between(one, other) == log.count_between(other, one) == 0
            assert (log.canonical(one) == log.canonical(other)) == same
        assert log.canonical(log.canonical(one)) == log.canonical(one)


@settings(deadline=None)
@given(LOGS)
def test_entries_are_counted_as_they_stand(log: PartitionLog) -> None:
    entries = [(each.ledger_id, n) for each in log.ledgers for n in range(each.entries)]
    for one in places_of(log):
        for other in places_of(log):
            wanted = [each for each in entries if one[:2] <= each < other[:2]]
            ranges = log.between(one, other)
            assert [(r.ledger_id, n) for r in ranges for n in range(r.first, r.last + 1)] == wanted
            assert log.count_between(one, other) == len(wanted)
            assert log.bytes_between(one, other) == len(wanted) * SIZE


@settings(deadline=None)
@given(LOGS, st.integers(0, 10))
def test_looking_back_gives_the_entries_right_before(log: PartitionLog, most: int) -> None:
    entries = [(each.ledger_id, n) for each in log.ledgers for n in range(each.entries)]
    for place in places_of(log):
        wanted = [each for each in entries if each < place[:2]][-most:] if most else []
        ranges = log.before(place, most)
        assert [(r.ledger_id, n) for r in ranges for n in range(r.first, r.last + 1)] == wanted
        assert log.count_between(log.back(place, most), place) == len(wanted)

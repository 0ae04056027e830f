from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.spark.errors import StatsError
from quire.spark.offsets import Place
from quire.spark.planning.logs import LedgerRange, LedgerSize, LostEntries, PartitionLog
from tests.unit.spark.logs_of_brokers import NAME, SIZE, log_of, stats_of

LOG = log_of((2, 10), (3, 10), (7, 9))


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


def test_a_ledger_that_rolled_after_the_last_confirmed_entry_was_read_is_bounded_by_it() -> None:
    log = PartitionLog.from_internal_stats(NAME, stats_of((2, 10), (3, 5), last=(2, 7)))
    assert (log.end(), log.count_between(log.earliest(), log.end())) == (Place(2, 8), 8)
    assert log.entries_of(3) == 0


def test_a_list_that_is_older_than_the_last_confirmed_entry_must_be_asked_again() -> None:
    for settled in (False, True):
        with pytest.raises(StatsError, match="9:3 is confirmed"):
            PartitionLog.from_internal_stats(NAME, stats_of((2, 10), last=(9, 3)), settled=settled)


def test_an_empty_ledger_in_the_middle_must_be_asked_again_and_is_then_believed() -> None:
    stats = stats_of((2, 10), (3, 0), (7, 5))
    with pytest.raises(StatsError, match="ledger 3 is shown empty"):
        PartitionLog.from_internal_stats(NAME, stats)
    assert PartitionLog.from_internal_stats(NAME, stats, settled=True).entries_of(3) == 0


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
    with pytest.raises(StatsError, match=NAME):
        PartitionLog.from_internal_stats(NAME, {**stats_of((2, 10)), **change})


# Places


def test_an_empty_log_begins_where_it_ends() -> None:
    log = log_of((5, 0))
    assert log.earliest() == log.end() == Place(5, 0)


def test_a_log_trimmed_to_nothing_ends_behind_its_last_entry_that_was() -> None:
    log = log_of((6, 0), last=(5, 99))
    assert log.earliest() == log.end() == Place(5, 100)


def test_an_open_ledger_without_entries_does_not_move_the_end() -> None:
    assert log_of((2, 10), (3, 0)).end() == Place(2, 10)
    assert log_of((2, 10), (3, 0), last=(3, -1)).end() == Place(2, 10)


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (Place(3, 0), Place(2, 10)),
        (Place(7, 0), Place(3, 10)),
        (Place(2, 10), Place(2, 10)),
        (Place(2, 0), Place(2, 0)),
        (Place(3, 4), Place(3, 4)),
        (Place(3, 0, 2), Place(3, 0, 2)),
        (Place(1, 0), Place(1, 0)),
        (Place(5, 0), Place(5, 0)),
        (Place(3, 99), Place(3, 99)),
    ],
)
def test_a_place_between_two_ledgers_has_the_name_behind_the_entry_before_it(place: Place, name: Place) -> None:
    assert LOG.canonical(place) == name


def test_places_around_empty_ledgers_have_one_name() -> None:
    log = log_of((1, 0), (2, 10), (3, 0), (4, 5), (6, 0))
    assert {log.canonical(each) for each in (Place(2, 10), Place(3, 0), Place(4, 0))} == {Place(2, 10)}
    assert {log.canonical(each) for each in (Place(4, 5), Place(6, 0))} == {Place(4, 5)} == {log.end()}
    assert {log.canonical(each) for each in (Place(1, 0), Place(2, 0))} == {Place(2, 0)} == {log.earliest()}


def test_the_start_of_an_open_ledger_behind_trimmed_ones_is_the_end() -> None:
    assert log_of((6, 0), last=(5, 99)).canonical(Place(6, 0)) == Place(5, 100)


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


def test_the_entry_that_the_start_is_in_the_middle_of_counts_and_that_of_the_end_does_not() -> None:
    assert LOG.between(Place(3, 4, 2), Place(3, 6, 5)) == (LedgerRange(3, 4, 5),)


# The hold


def test_the_hold_stays_at_least_one_entry_behind_so_that_the_ledger_read_last_stays() -> None:
    assert LOG.mark_delete_for(LOG.hold_at(Place(3, 10), 0)) == (3, 8)
    assert LOG.mark_delete_for(LOG.hold_at(Place(7, 9), 5)) == (7, 3)


def test_the_hold_counts_back_over_ledgers_and_no_further_than_the_start() -> None:
    assert LOG.mark_delete_for(LOG.hold_at(Place(7, 2), 4)) == (3, 7)
    assert LOG.mark_delete_for(LOG.hold_at(Place(7, 2), 12)) == (2, 9)
    assert LOG.mark_delete_for(LOG.hold_at(Place(7, 2), 1000)) == (2, -1)


def test_the_hold_of_a_start_in_the_middle_of_a_batch_keeps_that_batch() -> None:
    assert LOG.mark_delete_for(LOG.hold_at(Place(3, 4, 2), 1)) == (3, 2)
    assert LOG.mark_delete_for(Place(3, 4, 2)) == (3, 3)


def test_the_hold_of_an_empty_log_is_before_its_first_entry() -> None:
    log = log_of((5, 0))
    assert log.mark_delete_for(log.hold_at(log.end(), 1000)) == (5, -1)


# Deleted entries


@pytest.mark.parametrize("place", [Place(2, 0), Place(2, 10), Place(3, 0), Place(7, 9), Place(3, 4, 7)])
def test_a_place_in_the_list_has_lost_nothing(place: Place) -> None:
    assert LOG.missing_before(place) is None


def test_a_ledger_deleted_at_the_start_is_a_loss_up_to_the_first_that_is_there() -> None:
    lost = LOG.missing_before(Place(1, 4))
    assert lost is not None
    assert (lost.start, lost.end, lost.entries) == (Place(1, 4), Place(2, 0), None)


def test_a_ledger_deleted_in_the_middle_is_a_loss_up_to_the_next() -> None:
    lost = LOG.missing_before(Place(5, 0))
    assert lost is not None
    assert lost.end == Place(7, 0)


def test_a_loss_names_topic_range_and_option() -> None:
    lost = LOG.missing_before(Place(1, 4))
    assert lost is not None
    text = str(lost.error())
    assert NAME in text
    assert "1:4" in text
    assert "2:0" in text
    assert "failOnDataLoss=false" in text


def test_a_loss_without_an_end_says_from_where_on() -> None:
    for lost in (LostEntries.topic(NAME, Place(3, 4)), LOG.missing_before(Place(8, 0))):
        assert lost is not None
        assert f"the entries from {lost.start} on cannot be read" in str(lost)


def test_the_end_is_no_loss_though_its_ledger_was_trimmed() -> None:
    assert log_of((6, 0), last=(5, 99)).missing_before(Place(5, 100)) is None


def test_entries_that_were_confirmed_in_a_ledger_that_is_gone_are_a_loss_whatever_the_subscription_says() -> None:
    log = log_of((6, 0), last=(5, 99))
    lost = log.missing_before(Place(5, 40), mark_delete=(5, 39))
    assert lost is not None
    assert (lost.start, lost.end) == (Place(5, 40), Place(5, 100))


def test_a_trimmed_ledger_is_no_loss_if_the_subscription_stands_before_the_place() -> None:
    log = log_of((6, 3))
    assert log.missing_before(Place(5, 100), mark_delete=(5, 99)) is None
    assert log.missing_before(Place(5, 100), mark_delete=(5, 90)) is None
    assert log.missing_before(Place(5, 100)) is not None


def test_a_trimmed_ledger_is_a_loss_if_the_subscription_was_moved_past_the_place() -> None:
    assert log_of((6, 3)).missing_before(Place(5, 100), mark_delete=(5, 150)) is not None
    assert log_of((6, 3)).missing_before(Place(5, 100), mark_delete=(6, -1)) is not None


def test_a_ledger_that_was_dropped_because_it_stayed_empty_is_no_loss_to_a_held_stream() -> None:
    log = log_of((6, 3))
    assert log.missing_before(Place(5, 0), mark_delete=(5, -1)) is None
    assert log.missing_before(Place(5, 0), mark_delete=(6, -1)) is None
    assert log.missing_before(Place(5, 0), mark_delete=(6, 1)) is not None


def test_a_ledger_that_was_read_to_its_end_when_seen_is_no_loss() -> None:
    seen = log_of((5, 100), (6, 0))
    assert log_of((6, 3)).missing_before(Place(5, 100), seen=seen) is None
    assert log_of((9, 3)).missing_before(Place(5, 100), seen=seen) is not None


def test_a_ledger_that_could_have_grown_since_it_was_seen_is_a_loss() -> None:
    assert log_of((6, 3)).missing_before(Place(5, 100), seen=log_of((5, 100))) is not None


def test_a_loss_is_counted_if_the_log_was_seen_before() -> None:
    lost = log_of((6, 3)).missing_before(Place(5, 40), seen=log_of((5, 100), (6, 0)))
    assert lost is not None
    assert lost.entries == 60


def test_a_log_that_is_shorter_than_the_place_is_not_the_one_it_is_of() -> None:
    for place in (Place(7, 10), Place(8, 0), Place(3, 11)):
        lost = LOG.missing_before(place)
        assert lost is not None
        assert "not the log" in lost.reason

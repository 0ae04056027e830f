from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.spark.errors import OptionError
from quire.spark.offsets import EARLIEST, EARLIEST_MARK, LATEST, LATEST_MARK, Boundary, Offsets, Place
from quire.spark.planning.logs import LedgerRange, PartitionLog
from quire.spark.planning.ranges import canonical, next_end, ranges, resolve, topic_range
from tests.unit.spark.logs_of_brokers import NAME, SIZE, Broker, log_of

TOPIC = "persistent://public/default/x"
A, B, C = (f"{TOPIC}-partition-{index}" for index in range(3))


def logs_of(**entries: int) -> dict[str, PartitionLog]:
    """Return logs that each have one open ledger, number 5."""
    return {{"a": A, "b": B, "c": C}[key]: log_of((5, n)) for key, n in entries.items()}


def at(**entries: int) -> Offsets:
    return Offsets({{"a": A, "b": B, "c": C}[key]: Place(5, n) for key, n in entries.items()})


# The end of a trigger


def test_without_limits_a_trigger_ends_at_the_last_confirmed_entry() -> None:
    logs = {A: log_of((2, 10), (3, 10)), B: log_of((4, 7))}
    start = Offsets({A: Place(2, 3), B: Place(4, 0)})
    assert next_end(logs, start) == Offsets({A: Place(3, 10), B: Place(4, 7)})


def test_nothing_new_gives_start_itself() -> None:
    start = at(a=5, b=3)
    assert next_end(logs_of(a=5, b=3), start, messages_max=1) is start


def test_a_rolled_ledger_without_new_entries_is_nothing_new() -> None:
    start = Offsets({A: Place(2, 10)})
    for log in (log_of((2, 10), (3, 0)), log_of((3, 0), last=(2, 9)), log_of((3, 0), last=(3, -1))):
        assert next_end({A: log}, start) is start


def test_the_other_name_of_the_same_place_is_nothing_new() -> None:
    start = Offsets({A: Place(3, 0)})
    assert next_end({A: log_of((2, 10), (3, 0))}, start) is start


def test_a_partition_never_goes_back_though_its_log_is_shorter() -> None:
    assert next_end(logs_of(a=3, b=9), at(a=7, b=2)) == at(a=7, b=9)
    start = at(a=7)
    assert next_end(logs_of(a=3), start) is start


def test_a_target_behind_the_start_does_not_move_it_back() -> None:
    start = at(a=7)
    assert next_end(logs_of(a=9), start, target=at(a=4)) is start


def test_a_partition_that_start_does_not_have_begins_at_its_earliest_entry() -> None:
    end = next_end({**logs_of(a=5), B: log_of((7, 3), (9, 4))}, at(a=5), messages_max=5)
    assert end == Offsets({A: Place(5, 5), B: Place(9, 2)})


def test_a_new_partition_without_entries_is_nothing_new() -> None:
    start = at(a=5)
    assert next_end(logs_of(a=5, b=0), start) is start


def test_a_new_partition_enters_with_the_first_change_so_that_what_it_gets_is_not_missed() -> None:
    assert next_end(logs_of(a=6, b=0), at(a=5)) == at(a=6, b=0)


def test_a_partition_whose_topic_is_gone_stays_where_it_was() -> None:
    assert next_end(logs_of(a=6), at(a=5, c=3)) == at(a=6, c=3)


def test_an_available_now_query_takes_nothing_behind_its_target_and_no_newer_partitions() -> None:
    end = next_end(logs_of(a=20, b=20, c=20), at(a=5, b=5), target=at(a=8))
    assert end == at(a=8, b=5)


def test_no_trigger_ends_above_the_last_confirmed_entry_whatever_the_target_says() -> None:
    assert next_end(logs_of(a=20), at(a=5), target=at(a=99)) == at(a=20)
    assert next_end(logs_of(a=20), at(a=5), target=Offsets({A: Place(9, 3)})) == at(a=20)


def test_an_available_now_query_reads_partitions_of_its_target_from_their_start() -> None:
    assert next_end(logs_of(a=20), Offsets(), target=at(a=8)) == at(a=8)


def test_a_start_in_the_middle_of_a_batch_vanishes_with_the_first_trigger() -> None:
    start = Offsets({A: Place(5, 3, 2)})
    assert next_end(logs_of(a=10), start, messages_max=1) == at(a=4)
    assert next_end(logs_of(a=3), start) is start


def test_a_message_limit_takes_whole_entries_by_their_estimate() -> None:
    assert next_end(logs_of(a=100), at(a=0), messages_max=100, per_entry={A: 30.0}) == at(a=3)


def test_a_byte_limit_goes_by_the_ledgers_average() -> None:
    assert next_end(logs_of(a=100), at(a=0), bytes_max=10 * SIZE + 1) == at(a=10)


def test_both_limits_hold() -> None:
    assert next_end(logs_of(a=100), at(a=0), messages_max=50, bytes_max=10 * SIZE) == at(a=10)
    assert next_end(logs_of(a=100), at(a=0), messages_max=7, bytes_max=10 * SIZE) == at(a=7)


def test_an_entry_above_the_limits_is_taken_alone() -> None:
    assert next_end(logs_of(a=100), at(a=4), messages_max=1, bytes_max=1, per_entry={A: 1000.0}) == at(a=5)


def test_partitions_give_the_same_fraction_and_idle_ones_nothing() -> None:
    assert next_end(logs_of(a=2, b=98, c=0), at(a=0, b=0, c=0), messages_max=50) == at(a=1, b=49, c=0)


def test_a_trigger_goes_over_ledgers_and_ends_behind_the_entry_read_last() -> None:
    log = log_of((2, 10), (3, 10), (7, 9))
    ends = [next_end({A: log}, Offsets({A: Place(2, 4)}), messages_max=n)[A] for n in (6, 7, 16, 17)]
    assert ends == [Place(2, 10), Place(3, 1), Place(3, 10), Place(7, 1)]


def test_no_partition_starves_under_a_limit_of_one_message() -> None:
    start = at(a=0, b=0, c=0)
    for _ in range(100):
        start = next_end(logs_of(a=1000, b=1000, c=1000), start, messages_max=1)
    assert sum(place.entry_id for place in start.values()) == 100
    assert min(place.entry_id for place in start.values()) >= 10


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=3),
    st.none() | st.integers(1, 60),
    st.none() | st.integers(1, 60 * SIZE),
    st.floats(0.5, 20),
)
def test_triggers_end_at_the_target_with_every_entry_taken_once(
    partitions: list[tuple[int, int]], messages_max: int | None, bytes_max: int | None, rate: float
) -> None:
    names = (A, B, C)
    logs = {name: log_of((5, one), (8, other)) for name, (one, other) in zip(names, partitions, strict=False)}
    target = Offsets({name: log.end() for name, log in logs.items()})
    start, taken = Offsets(), Counter[tuple[str, int, int]]()
    while True:
        end = next_end(
            logs,
            start,
            messages_max=messages_max,
            bytes_max=bytes_max,
            per_entry=dict.fromkeys(names, rate),
            target=target,
        )
        if end is start:
            break
        entries = 0
        for name, place in end.items():
            begin = start.get(name, logs[name].earliest())
            assert begin <= place <= logs[name].end()
            found, lost = ranges(logs[name], begin, place)
            assert lost is None
            taken.update((name, part.ledger_id, n) for part in found for n in range(part.first, part.last + 1))
            entries += sum(part.entries for part in found)
        assert entries
        assert entries == 1 or messages_max is None or entries * rate <= messages_max + 1e-3
        assert entries == 1 or bytes_max is None or entries * SIZE <= bytes_max
        start = end
    everything = [
        (name, each.ledger_id, n) for name, log in logs.items() for each in log.ledgers for n in range(each.entries)
    ]
    assert taken == Counter(everything)


# Options of the user


def test_earliest_and_latest_are_places_of_every_partition() -> None:
    logs = {A: log_of((2, 10), (3, 5)), B: log_of((6, 0), last=(5, 99)), C: log_of((9, 0))}
    assert resolve("startingOffsets", EARLIEST, logs) == Offsets({A: Place(2, 0), B: Place(5, 100), C: Place(9, 0)})
    assert resolve("startingOffsets", LATEST, logs) == Offsets({A: Place(3, 5), B: Place(5, 100), C: Place(9, 0)})


def test_a_time_is_the_place_that_the_broker_found_or_the_end() -> None:
    logs = {A: log_of((2, 10), (3, 5)), B: log_of((2, 10), (3, 5)), C: log_of((4, 2))}
    found = resolve(
        "startingTimestamp", Boundary(kind="timestamp", timestamp_ms=7), logs, {A: Place(3, 0), C: Place(9, 9)}
    )
    assert found == Offsets({A: Place(2, 10), B: Place(3, 5), C: Place(4, 2)})


def given_places(**places: Place | int) -> Boundary:
    names = {"a": A, "b": B, "c": C, "x": TOPIC}
    return Boundary(kind="places", places=tuple((names[key], place) for key, place in places.items()))


def test_given_places_are_canonical_and_marks_looked_up() -> None:
    logs = {A: log_of((2, 10), (3, 5)), B: log_of((4, 7)), C: log_of((4, 7))}
    asked = given_places(a=Place(3, 0), b=EARLIEST_MARK, c=LATEST_MARK)
    assert resolve("startingOffsets", asked, logs) == Offsets({A: Place(2, 10), B: Place(4, 0), C: Place(4, 7)})


def test_a_partition_without_a_place_is_named() -> None:
    with pytest.raises(OptionError, match=f"startingOffsets.*no place for {B}, {C};"):
        resolve("startingOffsets", given_places(a=Place(5, 0)), logs_of(a=1, b=1, c=1))


def test_a_place_without_a_partition_is_named() -> None:
    with pytest.raises(OptionError, match=f"topics that are not read: {B}"):
        resolve("startingOffsets", given_places(a=Place(5, 0), b=Place(5, 0)), logs_of(a=1))


def test_a_mark_may_be_for_all_partitions_of_a_topic_but_a_place_not() -> None:
    assert resolve("startingOffsets", given_places(x=EARLIEST_MARK), logs_of(a=1, b=1)) == at(a=0, b=0)
    with pytest.raises(OptionError, match="that are not read"):
        resolve("startingOffsets", given_places(x=Place(5, 0)), logs_of(a=1, b=1))


def test_partition_0_in_kafkas_form_is_the_topic_itself_if_it_has_no_partitions() -> None:
    logs = {TOPIC: log_of((5, 4))}
    assert resolve("startingOffsets", given_places(a=Place(5, 2)), logs) == Offsets({TOPIC: Place(5, 2)})


@pytest.mark.parametrize("place", [Place(5, 11), Place(6, 1), Place(9, 0), Place(6, 0, 1)])
def test_a_place_that_the_log_cannot_have_is_refused(place: Place) -> None:
    with pytest.raises(OptionError, match="is outside"):
        resolve("startingOffsets", given_places(a=place), {A: log_of((5, 10), (6, 0))})


def test_a_place_in_a_deleted_ledger_is_left_to_the_check_for_loss() -> None:
    log = log_of((5, 10), (7, 3))
    for place in (Place(2, 4), Place(6, 0)):
        offsets = resolve("startingOffsets", given_places(a=place), {A: log})
        assert offsets == Offsets({A: place})
        assert log.missing_before(offsets[A]) is not None


# Readable entries

LOG = log_of((2, 10), (3, 10), (7, 9))


def test_the_entries_between_two_places_are_told_by_ledger() -> None:
    found, lost = ranges(LOG, Place(2, 8), Place(7, 2))
    assert found == (LedgerRange(2, 8, 9), LedgerRange(3, 0, 9), LedgerRange(7, 0, 1))
    assert lost is None


def test_nothing_between_is_neither_read_nor_lost() -> None:
    assert ranges(LOG, Place(1, 4), Place(1, 4)) == ((), None)
    assert ranges(LOG, Place(2, 10), Place(3, 0)) == ((), None)


def test_a_range_whose_first_ledger_is_gone_goes_on_at_the_next_and_says_so() -> None:
    found, lost = ranges(LOG, Place(1, 4), Place(3, 2))
    assert found == (LedgerRange(2, 0, 9), LedgerRange(3, 0, 1))
    assert lost is not None
    assert (lost.start, lost.end, lost.entries) == (Place(1, 4), Place(2, 0), None)


def test_a_range_wholly_in_a_ledger_that_is_gone_is_lost_with_its_count() -> None:
    found, lost = ranges(LOG, Place(5, 4), Place(5, 10))
    assert found == ()
    assert lost is not None
    assert (lost.start, lost.end, lost.entries) == (Place(5, 4), Place(5, 10), 6)
    assert NAME in str(lost)
    assert "failOnDataLoss" in str(lost)


def test_a_range_whose_last_ledger_is_gone_is_read_as_far_as_it_is_there() -> None:
    found, lost = ranges(LOG, Place(3, 8), Place(5, 4))
    assert found == (LedgerRange(3, 8, 9),)
    assert lost is not None
    assert (lost.start, lost.end, lost.entries) == (Place(5, 0), Place(5, 4), 4)


def test_a_range_behind_the_end_of_a_shorter_log_is_lost() -> None:
    found, lost = ranges(LOG, Place(7, 5), Place(7, 12))
    assert found == (LedgerRange(7, 5, 8),)
    assert lost is not None
    assert (lost.start, lost.end, lost.entries) == (Place(7, 9), Place(7, 12), 3)


def test_a_ledger_deleted_in_the_middle_is_noticed_if_the_log_was_seen_with_it() -> None:
    seen = log_of((2, 10), (3, 10), (5, 6), (7, 9))
    assert ranges(LOG, Place(2, 8), Place(7, 2))[1] is None
    found, lost = ranges(LOG, Place(2, 8), Place(7, 2), seen=seen)
    assert found[-1] == LedgerRange(7, 0, 1)
    assert lost is not None
    assert (lost.start, lost.end, lost.entries) == (Place(5, 0), Place(5, 6), 6)


def test_losses_at_both_ends_are_told_as_one() -> None:
    _, lost = ranges(LOG, Place(1, 4), Place(8, 3))
    assert lost is not None
    assert (lost.start, lost.end, lost.entries) == (Place(1, 4), Place(8, 3), None)
    assert "ledger 1 was deleted, ledger 8 was deleted" in str(lost)


def test_a_topic_made_anew_under_the_name_has_lost_all_that_was_before() -> None:
    found, lost = ranges(log_of((20, 4)), Place(5, 10), Place(20, 4))
    assert found == (LedgerRange(20, 0, 3),)
    assert lost is not None
    assert (lost.start, lost.end) == (Place(5, 10), Place(20, 0))


def test_a_held_stream_loses_nothing_when_the_ledger_it_has_read_is_trimmed() -> None:
    assert ranges(log_of((6, 9)), Place(5, 10), Place(6, 4), mark_delete=(5, 9)) == ((LedgerRange(6, 0, 3),), None)


def test_a_task_leaves_messages_out_only_of_the_entry_that_the_start_is_in() -> None:
    task, _ = topic_range(LOG, Place(2, 8, 3), Place(3, 2))
    assert task is not None
    assert (task.start_batch_index, task.entries) == (3, 4)
    task, lost = topic_range(LOG, Place(1, 8, 3), Place(3, 2))
    assert task is not None
    assert lost is not None
    assert task.start_batch_index == 0


def test_a_task_may_look_back_over_ledgers_for_chunks() -> None:
    task, _ = topic_range(LOG, Place(3, 2), Place(3, 4), earlier_max=5)
    assert task is not None
    assert task.earlier == (LedgerRange(2, 7, 9), LedgerRange(3, 0, 1))


def test_a_range_without_entries_is_no_task() -> None:
    assert topic_range(LOG, Place(2, 10), Place(3, 0)) == (None, None)


def test_canonical_is_that_of_the_log() -> None:
    assert canonical(LOG, Place(3, 0)) == Place(2, 10)


# The life of a stream

OPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.sampled_from(["roll", "restart", "trigger", "commit", "again"]), st.just(0)),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(OPS, st.none() | st.integers(1, 4), st.integers(0, 3), st.booleans())
def test_a_held_stream_reads_every_entry_once_while_the_log_rolls_and_is_trimmed(
    ops: list[tuple[str, int]], messages_max: int | None, behind: int, from_latest: bool
) -> None:
    broker = Broker()
    for name, count in ops[:5]:
        if name == "append":
            broker.append(count)
    log = broker.log()
    start = Offsets({A: log.end() if from_latest else log.earliest()})
    broker.mark_delete = log.mark_delete_for(log.hold_at(start[A], behind))
    wanted = [] if from_latest else [(each.ledger_id, n) for each in log.ledgers for n in range(each.entries)]
    read: list[tuple[int, int]] = []
    committed = start

    def trigger(start: Offsets) -> Offsets:
        log = broker.log()
        assert log.missing_before(start[A], mark_delete=broker.mark_delete) is None
        end = next_end({A: log}, start, messages_max=messages_max)
        assert (end is start) == (len(read) == len(wanted))
        assert (end.text() == start.text()) == (end is start)
        assert log.canonical(end[A]) == end[A] or end is start
        found, lost = ranges(log, start[A], end[A], mark_delete=broker.mark_delete)
        assert lost is None
        read.extend((part.ledger_id, n) for part in found for n in range(part.first, part.last + 1))
        return end

    for name, count in ops[5:]:
        if name == "append":
            wanted.extend(broker.append(count))
        elif name == "roll":
            broker.roll()
        elif name == "restart":
            broker.restart()
        elif name == "trigger":
            committed, start = start, trigger(start)
        elif name == "commit":  # behind the checkpoint, by one trigger
            log = broker.log()
            broker.acknowledge(log.mark_delete_for(log.hold_at(committed[A], behind)))
        else:  # started again with an unfinished batch: it is read again, the same
            log = broker.log()
            found, lost = ranges(log, committed[A], start[A], mark_delete=broker.mark_delete)
            again = [(part.ledger_id, n) for part in found for n in range(part.first, part.last + 1)]
            assert lost is None
            assert again == read[len(read) - len(again) :]
    while (end := trigger(start)) is not start:
        start = end
    assert read == wanted


@given(st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_a_stream_that_nothing_holds_is_told_when_what_it_has_not_read_is_trimmed(
    read: int, unread: int, restart: bool
) -> None:
    broker = Broker()
    broker.append(read)
    start = broker.log().end()
    last = broker.append(unread)[-1]
    broker.acknowledge(last)
    broker.roll()
    if restart:
        broker.restart()
    broker.append(1)
    lost = broker.log().missing_before(start)
    assert lost is not None
    assert lost.start == start

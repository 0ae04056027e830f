from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursors.ack_state import AckState
from cursors.errors import InvalidAckError
from quire.ledger.position import LATEST, Position
from tests.support.refusals import refuses
from tests.unit.cursors.fake_log import at, fake_log

LEDGERS = ((2, 4), (5, 3), (9, 4))
ALL = [Position(ledger, entry) for ledger, count in LEDGERS for entry in range(count)]


def state_at(mark_delete: tuple[int, int]) -> AckState:
    return AckState(fake_log(*LEDGERS), Position(*mark_delete))


def check(state: AckState, acked: set[Position]) -> None:
    """Check MarkDeleteIsTight, and that exactly `acked` is acknowledged."""
    run = list(itertools.takewhile(lambda place: place in acked, ALL))
    assert [place for place in ALL if state.is_acked(place)] == sorted(acked)
    assert [place for place in ALL if place <= state.mark_delete] == run
    assert state.ranges.count == len(acked) - len(run)
    assert state.backlog() == len(ALL) - len(acked)


def test_acks_in_any_order_move_the_mark_delete_position_over_ledgers() -> None:
    for order in itertools.permutations(ALL[2:8]):
        state = state_at((2, 1))
        done = set(ALL[:2])
        for place in order:
            state.ack_individual([place])
            done.add(place)
            check(state, done)
        assert state.mark_delete == Position(9, 0)


@given(st.lists(st.lists(st.sampled_from(ALL), max_size=6), max_size=8))
def test_runs_of_acks_do_what_single_ones_do(runs: list[list[Position]]) -> None:
    state = state_at((2, -1))
    done: set[Position] = set()
    for run in runs:
        state.ack_individual(run)
        done |= set(run)
        check(state, done)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(ALL)), max_size=8))
def test_cumulative_and_individual_acks_mix(calls: list[tuple[bool, Position]]) -> None:
    state = state_at((2, -1))
    done: set[Position] = set()
    for cumulative, place in calls:
        if cumulative:
            state.ack_cumulative(place)
            done |= {one for one in ALL if one <= place}
        else:
            state.ack_individual([place])
            done.add(place)
        check(state, done)


@pytest.mark.parametrize("foreign", [*at((9, 4), (9, 1 << 40), (6, 0), (2, 4), (99, 0)), LATEST, Position(9, -1)])
def test_an_ack_of_what_this_log_does_not_have_is_an_error_without_effect(foreign: Position) -> None:
    state = state_at((2, 1))
    with pytest.raises(InvalidAckError) as raised:
        state.ack_individual([Position(5, 0), foreign, Position(5, 1)])
    assert raised.value.positions == (foreign,)
    check(state, {*ALL[:2], Position(5, 0), Position(5, 1)})
    refuses(InvalidAckError, lambda: state.ack_cumulative(foreign))
    refuses(InvalidAckError, lambda: state.ack_batch(foreign, 0b1))
    check(state, {*ALL[:2], Position(5, 0), Position(5, 1)})
    assert len(state.batches) == 0


def test_an_ack_of_the_last_confirmed_entry_is_valid_though_nobody_read_it() -> None:
    state = state_at((2, -1))
    state.ack_cumulative(Position(9, 3))
    assert state.backlog() == 0


def test_an_ack_that_is_repeated_or_behind_is_passed_over() -> None:
    state = state_at((5, 0))
    state.ack_individual(at((2, 0), (5, 0), (1, 77), (9, 1), (9, 1)))
    assert not state.ack_cumulative(Position(2, 2))
    check(state, {*ALL[:5], Position(9, 1)})


def test_a_batch_is_acknowledged_when_nothing_of_it_remains() -> None:
    state = state_at((2, -1))
    assert state.ack_batch(Position(2, 0), 0b110) == 0b110
    assert state.mark_delete == Position(2, -1)
    assert state.ack_batch(Position(2, 0), 0b011) == 0b010
    assert state.ack_batch(Position(2, 0), 0b101) == 0
    check(state, {Position(2, 0)})
    assert state.ack_batch(Position(2, 0), 0b111) == 0
    assert len(state.batches) == 0


def test_a_cumulative_ack_into_a_batch_acknowledges_what_is_before_it_and_part_of_it() -> None:
    state = state_at((2, -1))
    state.ack_cumulative(Position(5, 0), 0b1100)
    check(state, set(ALL[:4]))
    assert state.batches.unacked(Position(5, 0)) == 0b1100


def test_acks_past_a_batch_forget_it() -> None:
    state = state_at((2, -1))
    state.ack_batch(Position(2, 1), 0b10)
    state.ack_cumulative(Position(2, 2))
    assert len(state.batches) == 0
    state.ack_batch(Position(5, 1), 0b10)
    state.ack_individual([Position(5, 1)])
    assert len(state.batches) == 0


def test_what_is_not_acknowledged_is_told_in_runs() -> None:
    state = state_at((2, 0))
    state.ack_individual(at((2, 2), (5, 0), (5, 1), (5, 2)))
    assert state.unacked_runs(Position(2, 0), 4) == [(1, 1), (3, 1)]
    assert state.unacked_runs(Position(2, 2), 1) == []
    assert state.unacked_runs(Position(5, 0), 3) == []
    assert state.unacked_runs(Position(9, 0), 10) == [(0, 10)]
    assert state.unacked_runs(Position(1, 0), 10) == []


def test_the_next_unacknowledged_place_skips_whole_ledgers() -> None:
    state = state_at((2, 0))
    state.ack_individual(at((2, 3), (5, 0), (5, 1), (5, 2), (9, 0)))
    assert state.next_unacked(Position(2, -1)) == Position(2, 1)
    assert state.next_unacked(Position(2, 3)) == Position(9, 1)
    state.ack_individual(at((9, 1), (9, 2), (9, 3)))
    assert state.next_unacked(Position(2, 3)) == Position(9, 4)


def test_changes_tell_what_was_added_above_the_mark_delete_position_since_the_last_time() -> None:
    state = state_at((2, -1))
    assert state.take_changes().replaced
    state.ack_individual(at((2, 2), (2, 3), (5, 1), (9, 0)))
    state.ack_batch(Position(9, 2), 0b1)
    changes = state.take_changes()
    assert (changes.replaced, changes.ranges) == (False, [2, 2, 3, 5, 1, 1, 9, 0, 0])
    assert list(changes.batches) == [Position(9, 2)]
    assert state.take_changes().ranges == []
    state.reset(Position(2, -1))
    assert state.take_changes().replaced


@pytest.mark.parametrize(
    ("stored", "fitted"),
    [((9, 7), (9, 3)), ((99, 3), (9, 3)), ((2, 9), (2, 3)), ((3, -1), (5, -1)), ((1, 5), (2, -1)), ((5, 1), (5, 1))],
)
def test_a_recovered_position_is_fitted_to_the_log(stored: tuple[int, int], fitted: tuple[int, int]) -> None:
    state = state_at(stored)
    state.fit_to_log()
    assert state.mark_delete == Position(*fitted)


def test_a_recovered_position_at_the_start_of_an_empty_current_ledger_stays() -> None:
    state = AckState(fake_log((2, 4), (7, 0)), Position(7, -1))
    state.fit_to_log()
    assert state.mark_delete == Position(7, -1)
    assert state.backlog() == 0


def test_recovered_ranges_are_fitted_to_the_log() -> None:
    state = state_at((2, 0))
    state.ranges.add(2, 0, 2)
    state.ranges.add(3, 0, 9)
    state.ranges.add(9, 2, 50)
    state.batches.ack(Position(2, 1), 1)
    state.batches.ack(Position(9, 1), 1)
    state.batches.ack(Position(9, 9), 1)
    state.fit_to_log()
    check(state, {*ALL[:3], Position(9, 2), Position(9, 3)})
    assert [place for place, _ in state.batches.items()] == [Position(9, 1)]


@given(st.sets(st.sampled_from(ALL)), st.integers(1, 12))
def test_the_nth_unacknowledged_entry_is_found(acked: set[Position], count: int) -> None:
    state = state_at((2, -1))
    state.ack_individual(sorted(acked))
    wanted = [place for place in ALL if place not in acked]
    assert state.nth_unacked(count) == (wanted[count - 1] if count <= len(wanted) else None)


def test_the_nth_unacknowledged_entry_is_found_behind_whole_and_partial_chunks() -> None:
    log = fake_log((3, 5000), (4, 0), (6, 3000))
    state = AckState(log, Position(3, 9))
    acked = {Position(3, each) for each in (*range(1024, 2048), *range(2100, 4000, 3))}
    acked |= {Position(6, each) for each in range(2, 2999)}
    state.ack_individual(sorted(acked))
    places = [Position(3, each) for each in range(10, 5000)] + [Position(6, each) for each in range(3000)]
    wanted = [place for place in places if place not in acked]
    for count in (*range(1, len(wanted), 97), len(wanted) - 1, len(wanted)):
        assert state.nth_unacked(count) == wanted[count - 1]
    assert state.nth_unacked(len(wanted) + 1) is None

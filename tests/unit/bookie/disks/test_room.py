"""Tests of bookie/disks/room.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie.disks.room import SPARE_PART, DiskRoom

RESERVE = 1 << 20
SPARE = RESERVE // SPARE_PART


@pytest.fixture
def room() -> DiskRoom:
    return DiskRoom(RESERVE, 0)


def test_adds_end_while_there_is_room_for_everything_that_is_not_flushed(room: DiskRoom) -> None:
    room.measured(SPARE + 500, 500, reserve_held=True)
    assert not room.is_full
    room.measured(SPARE + 499, 500, reserve_held=True)
    assert room.reason == f"{SPARE + 499} bytes are free, {SPARE + 500} are needed"


def test_what_the_journal_may_reserve_at_once_is_kept_free() -> None:
    room = DiskRoom(RESERVE, 4000)
    room.measured(SPARE + 4000 + 500, 500, reserve_held=True)
    assert not room.is_full
    room.measured(SPARE + 4000 + 499, 500, reserve_held=True)
    assert room.is_full


def test_adds_begin_again_only_when_there_is_clearly_more_room(room: DiskRoom) -> None:
    room.measured(0, 0, reserve_held=True)
    room.measured(2 * SPARE - 1, 0, reserve_held=True)
    assert room.is_full
    room.measured(2 * SPARE, 0, reserve_held=True)
    assert not room.is_full


def test_what_is_added_between_two_measurements_counts_twice_and_waits_for_the_next(room: DiskRoom) -> None:
    room.measured(SPARE + 1000, 0, reserve_held=True)
    assert room.take(400)
    assert not room.take(101)
    assert room.take(100), "what did not fit has taken nothing"
    assert not room.is_full, "only a measurement says so"
    room.began()
    room.measured(SPARE + 202, 0, reserve_held=True)
    assert not room.is_full
    assert room.take(101)


def test_what_is_added_while_the_disk_is_measured_counts(room: DiskRoom) -> None:
    room.measured(SPARE + 1000, 0, reserve_held=True)
    assert room.take(100)
    room.began()
    assert room.take(150)
    room.measured(SPARE + 800, 0, reserve_held=True)
    assert not room.take(251), "the bytes of the second add are not among those that were measured"
    assert room.take(250)


def test_an_add_that_does_not_fit_into_what_was_measured_for_it_makes_the_disk_full(room: DiskRoom) -> None:
    room.measured(SPARE + 1000, 0, reserve_held=True)
    assert not room.take(501)
    room.measured(SPARE + 1001, 0, reserve_held=True)
    assert room.reason == f"{SPARE + 1001} bytes are free, {SPARE + 1002} are needed"
    assert not room.take(1)
    room.measured(2 * SPARE, 0, reserve_held=True)
    assert room.take(501)


def test_a_disk_that_has_room_again_takes_adds_of_at_least_half_the_spare(room: DiskRoom) -> None:
    room.measured(SPARE - 1, 0, reserve_held=True)
    room.measured(2 * SPARE, 0, reserve_held=True)
    assert room.take(SPARE // 2)


def test_a_failed_write_counts_until_the_reserve_is_there_again(room: DiskRoom) -> None:
    room.measured(1 << 40, 0, reserve_held=True)
    room.failed("no space")
    for held in (True, False):
        room.measured(1 << 40, 0, reserve_held=held)
        assert room.reason == "no space"
    room.reserve_taken()
    room.measured(1 << 40, 0, reserve_held=True)
    assert room.reason == ""


def test_compaction_needs_room_and_does_not_wait_for_the_reserve_after_a_failed_write(room: DiskRoom) -> None:
    room.failed("No space left on device")
    room.measured(SPARE + 500, 500, reserve_held=False)
    assert room.is_full
    assert not room.may_take_reserve(SPARE + 500, 500, RESERVE), "only compaction can free the room for it"
    assert room.may_compact(SPARE + 500, 500)
    assert not room.may_compact(SPARE + 499, 500)


def test_adds_begin_again_only_with_the_reserve(room: DiskRoom) -> None:
    room.measured(0, 0, reserve_held=True)
    room.measured(1 << 40, 0, reserve_held=False)
    assert room.is_full
    room.measured(1 << 40, 0, reserve_held=True)
    assert not room.is_full


def test_the_reserve_is_given_up_only_when_it_is_needed(room: DiskRoom) -> None:
    room.measured(SPARE, 0, reserve_held=True)
    assert not room.needs_reserve(0, 0), "adds have not ended"
    room.measured(SPARE - 1, 0, reserve_held=True)
    assert not room.needs_reserve(SPARE // 2, 0)
    assert room.needs_reserve(SPARE // 2 - 1, 0)
    assert not room.needs_reserve(SPARE // 2 + 700, 700)
    assert room.needs_reserve(SPARE // 2 + 699, 700), "the next checkpoint has no room"
    room.measured(4 * SPARE, 0, reserve_held=True)
    room.failed("no space")
    assert room.needs_reserve(1 << 40, 0), "whatever is said to be free"


def test_without_a_reserve_only_failed_writes_count() -> None:
    room = DiskRoom(0, 0)
    room.measured(0, 0, reserve_held=True)
    assert not room.is_full
    room.failed("no space")
    assert room.is_full
    room.measured(0, 0, reserve_held=True)
    assert not room.is_full


def test_a_threshold_holds_beside_the_bytes(room: DiskRoom) -> None:
    room.measured(1 << 40, 0, reserve_held=True)
    room.threshold("96 % are used")
    assert (room.reason, room.is_full) == ("96 % are used", False)
    assert not room.take(1)
    assert not room.needs_reserve(1 << 40, 0)
    room.measured(0, 0, reserve_held=True)
    assert room.reason == f"0 bytes are free, {SPARE} are needed"
    room.measured(1 << 40, 0, reserve_held=True)
    assert room.reason == "96 % are used"
    room.threshold("")
    assert room.reason == ""


@given(st.integers(0, 4 * RESERVE), st.integers(0, RESERVE), st.integers(0, 1 << 30))
def test_what_is_put_back_does_not_end_the_adds_at_once(free: int, unflushed: int, size: int) -> None:
    room = DiskRoom(RESERVE, 0)
    room.failed("no space")
    if room.may_take_reserve(free, unflushed, size):
        room.reserve_taken()
        room.measured(free - size, unflushed, reserve_held=True)
        assert not room.is_full

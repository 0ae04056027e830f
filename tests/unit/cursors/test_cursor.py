from __future__ import annotations

import pytest

from cursors.cursor import Cursor
from cursors.errors import InvalidAckError, InvalidCursorNameError
from cursors.opening import create_cursor, cursor_path, memory_cursor, recover_cursor
from quire.ledger.position import EARLIEST, LATEST, Position
from tests.unit.cursors.fake_log import LOG_NAME, LOG_PATH, Bench, acked, at, fake_log

LOG = fake_log((2, 4), (5, 3), (9, 4))


def reader(mark_delete: tuple[int, int] = (2, -1)) -> Cursor:
    return memory_cursor(LOG, "reader", Position(*mark_delete))


def test_a_cursor_starts_to_read_after_its_mark_delete_position() -> None:
    assert reader((2, 3)).read_position == Position(5, 0)


def test_an_ack_of_what_was_not_read_moves_the_read_position_along() -> None:
    cursor = reader()
    cursor.ack_cumulative(Position(5, 2))
    assert cursor.read_position == Position(9, 0)
    cursor.ack_individual(at((9, 1)))
    assert cursor.read_position == Position(9, 0)


def test_an_invalid_ack_among_others_leaves_the_others_in_effect() -> None:
    cursor = reader()
    with pytest.raises(InvalidAckError):
        cursor.ack_individual(at((2, 0), (77, 0)))
    assert (cursor.mark_delete, cursor.read_position) == (Position(2, 0), Position(2, 1))


def test_rewind_reads_again_from_the_first_unacknowledged_entry() -> None:
    cursor = reader()
    cursor.ack_individual(at((2, 0)))
    cursor.read_position = Position(9, 4)
    cursor.rewind()
    assert cursor.read_position == Position(2, 1)


def test_a_cursor_in_memory_is_persisted_at_once_and_holds_nothing() -> None:
    answers: list[object] = []
    cursor = reader()
    cursor.persisted(answers.append)
    assert answers == [None]
    assert not cursor.durable


def test_a_batch_tells_what_is_left_of_it_until_it_is_whole() -> None:
    cursor = reader()
    assert cursor.ack_set(Position(2, 0)) is None
    assert not cursor.ack_batch(Position(2, 0), [-1, 1])
    assert not cursor.ack_batch(Position(2, 0), [0b10, 0])
    assert cursor.ack_set(Position(2, 0)) == [0b10]
    assert cursor.ack_batch(Position(2, 0), [])
    assert cursor.ack_set(Position(2, 0)) is None
    assert cursor.mark_delete == Position(2, 0)


def test_activity_is_told_once_per_change() -> None:
    told: list[int] = []
    cursor = reader()
    cursor.on_activity = told.append
    for call in (cursor.activate, cursor.activate, cursor.deactivate, cursor.deactivate):
        call()
    assert told == [1, -1]


def test_skipping_all_leaves_no_backlog() -> None:
    cursor = reader()
    cursor.ack_individual(at((5, 1)))
    cursor.skip_all()
    assert (cursor.backlog(), cursor.mark_delete, cursor.ack_ranges()) == (0, Position(9, 3), [])
    cursor.skip_to(Position(2, 0))
    assert cursor.mark_delete == Position(9, 3)


@pytest.mark.parametrize(
    ("target", "mark_delete", "read"),
    [
        (Position(5, 1), (5, 0), (5, 1)),
        (Position(5, 0), (2, 3), (5, 0)),
        (EARLIEST, (2, -1), (2, 0)),
        (Position(1, 8), (2, -1), (2, 0)),
        (LATEST, (9, 3), (9, 4)),
        (Position(9, 4), (9, 3), (9, 4)),
        (Position(6, 1), (5, 2), (9, 0)),
    ],
)
async def test_seek_delivers_next_what_stands_there_and_is_durable_on_return(
    target: Position, mark_delete: tuple[int, int], read: tuple[int, int], bench: Bench
) -> None:
    cursor = await create_cursor(bench.services, LOG, LOG_PATH, LOG_NAME, "sub", Position(2, 1), [], bench.on_fenced)
    await acked(cursor, (5, 1), (9, 0))
    await cursor.seek(target)
    assert (cursor.mark_delete, cursor.read_position) == (Position(*mark_delete), Position(*read))
    assert cursor.ack_ranges() == []
    found = await recover_cursor(bench.services, LOG, LOG_PATH, LOG_NAME, "sub", bench.on_fenced)
    assert (found.mark_delete, found.ack_ranges()) == (Position(*mark_delete), [])


async def test_seek_into_a_batch_wants_only_some_of_its_messages(bench: Bench) -> None:
    cursor = await create_cursor(bench.services, LOG, LOG_PATH, LOG_NAME, "sub", Position(2, 1), [], bench.on_fenced)
    await cursor.seek(Position(5, 1), [0b1100])
    found = await recover_cursor(bench.services, LOG, LOG_PATH, LOG_NAME, "sub", bench.on_fenced)
    assert found.ack_set(Position(5, 1)) == [0b1100]


async def test_properties_are_stored_with_the_position(bench: Bench) -> None:
    cursor = await create_cursor(bench.services, LOG, LOG_PATH, LOG_NAME, "sub", Position(2, 1), [], bench.on_fenced)
    cursor.set_properties({"CompactedTopicLedger": 20})
    await cursor.wait_persisted()
    found = await recover_cursor(bench.services, LOG, LOG_PATH, LOG_NAME, "sub", bench.on_fenced)
    assert found.properties == {"CompactedTopicLedger": 20}


def test_names_of_subscriptions_are_escaped_as_in_the_original_and_those_that_cannot_be_are_refused() -> None:
    assert cursor_path("/l", "a b/c~ä*") == "/l/a+b%2Fc%7E%C3%A4*"
    for name in ("", ".", ".."):
        with pytest.raises(InvalidCursorNameError):
            cursor_path("/l", name)


def test_skipping_counts_only_what_is_not_acknowledged() -> None:
    cursor = reader()
    cursor.ack_individual(at((2, 1), (5, 0)))
    cursor.skip(4)
    assert (cursor.mark_delete, cursor.read_position, cursor.backlog()) == (Position(5, 1), Position(5, 2), 5)
    cursor.skip(0)
    assert cursor.backlog() == 5
    cursor.skip(9)
    assert (cursor.mark_delete, cursor.backlog()) == (Position(9, 3), 0)

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest
import trio

from cursors.config import CursorConfig
from cursors.cursor import Cursor
from cursors.doors import ReadOnlyLedger
from cursors.errors import (
    CursorClosedError,
    CursorError,
    CursorFencedError,
    CursorPersistError,
    CursorRecoveryError,
)
from cursors.opening import create_cursor, cursor_path, recover_cursor
from cursors.position_info import NO_LEDGER, CursorNode, base_of, decode_chain, decode_node
from quire.ledger.errors import LedgerReadError, LedgerRecoveryError, LedgerWriteError, NotEnoughBookiesError
from quire.ledger.position import Position
from quire.metadata.errors import MetadataUnavailableError, NodeExistsError
from quire.metadata.local.memory import MemoryStore
from quire.metadata.store import Op, Put
from tests.support.nodes import node_at
from tests.support.refusals import raises
from tests.support.waiting import until
from tests.unit.cursors.fake_log import LOG_NAME, LOG_PATH, Bench, acked, at, fake_log, in_bench

LOG = fake_log((1, 100_000))
SMALL = CursorConfig(ensemble_size=1, write_quorum=1, ack_quorum=1, entries_max=3, retry_timeout_s=5)


async def new(bench: Bench, name: str = "sub") -> Cursor:
    return await create_cursor(
        bench.services, LOG, LOG_PATH, LOG_NAME, name, Position(1, -1), [("who", "me")], bench.on_fenced
    )


async def again(bench: Bench, name: str = "sub") -> Cursor:
    """Return the state that another broker finds."""
    return await recover_cursor(bench.services, LOG, LOG_PATH, LOG_NAME, name, bench.on_fenced)


async def node(bench: Bench, name: str = "sub") -> CursorNode:
    found = await node_at(bench.metadata, cursor_path(LOG_PATH, name))
    return decode_node(found.value)[0]


async def test_a_new_cursor_is_durable_before_it_is_answered_and_makes_no_ledger(bench: Bench) -> None:
    await new(bench)
    assert (await node(bench)).ledger_id == -1
    found = await again(bench)
    assert (found.mark_delete, found.cursor_properties) == (Position(1, -1), (("who", "me"),))
    await raises(NodeExistsError, new(bench))
    assert bench.ledgers.listed() == set()


def redeliver(cursor: Cursor, *entry_ids: int) -> None:
    for entry_id in entry_ids:
        cursor.redeliveries.increment(Position(1, entry_id))
    cursor.redelivered()


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("acked", [pytest.param(4, id="whole"), pytest.param(4000, id="changes alone")])
async def test_redelivery_counts_of_what_is_not_acknowledged_come_back(bench: Bench, closed: bool, acked: int) -> None:
    cursor = await new(bench)
    cursor.ack_individual(at(*[(1, 100 + 2 * number) for number in range(acked)]))
    redeliver(cursor, 3, 5, 5, 7)
    await cursor.wait_persisted()
    redeliver(cursor, 5, 9)
    cursor.ack_individual(at((1, 7)))
    cursor.redeliveries.forget(Position(1, 7))
    await cursor.wait_persisted()
    if closed:
        assert cursor.store is not None
        await cursor.store.close()
    found = await again(bench)
    assert found.redeliveries.values == dict(zip(at((1, 3), (1, 5), (1, 9)), (1, 3, 1), strict=True))


async def test_what_is_read_again_after_a_seek_counts_from_the_start(bench: Bench) -> None:
    cursor = await new(bench)
    cursor.ack_cumulative(Position(1, 4))
    redeliver(cursor, 8, 9)
    await cursor.seek(Position(1, 5))
    assert (await again(bench)).redeliveries.values == dict.fromkeys(at((1, 8), (1, 9)), 1)
    await cursor.seek(Position(1, 2))
    assert (await again(bench)).redeliveries.values == {}


async def test_the_first_ack_makes_the_ledger_in_one_multi_with_the_node(bench: Bench) -> None:
    cursor = await new(bench)
    await acked(cursor, (1, 0))
    assert [type(op).__name__ for op in bench.ledgers.multis[0]] == ["Create", "Put", "Check"]
    assert (await node(bench)).ledger_id == 100
    assert (await again(bench)).mark_delete == Position(1, 0)
    assert dict(bench.ledgers.stored[100].custom_metadata)["pulsar/cursor"] == b"sub"


async def test_an_answer_comes_only_after_the_entry_is_confirmed(bench: Bench) -> None:
    cursor = await new(bench)
    await acked(cursor, (1, 0))
    bench.ledgers.writers[100].held = True
    answers: list[object] = []
    cursor.ack_individual(at((1, 1)))
    cursor.persisted(answers.append)
    await trio.sleep(5)
    assert answers == []
    assert cursor.durable_mark_delete == Position(1, 0)
    bench.ledgers.release()
    assert answers == [None]
    assert cursor.durable_mark_delete == Position(1, 1)
    cursor.persisted(answers.append)
    assert answers == [None, None]


async def test_what_comes_while_an_entry_is_in_flight_goes_into_the_next_one(bench: Bench) -> None:
    cursor = await new(bench)
    await acked(cursor, (1, 0))
    writer = bench.ledgers.writers[100]
    writer.held = True
    answers: list[object] = []
    for entry in range(1, 1000):
        cursor.ack_individual(at((1, entry)))
        cursor.persisted(answers.append)
    assert writer.last_pushed == 1
    writer.confirm()
    assert len(answers) == 1
    assert writer.last_pushed == 2
    writer.confirm()
    assert len(answers) == 999
    assert decode_chain(writer.stored.entries[-1:]).mark_delete == Position(1, 999)


async def test_acks_that_nobody_waits_for_are_written_a_moment_later(bench: Bench) -> None:
    cursor = await new(bench)
    for entry in range(500):
        cursor.ack_individual(at((1, entry)))
    assert bench.ledgers.listed() == set()
    await trio.sleep(0.1)
    assert cursor.durable_mark_delete == Position(1, 499)
    assert cursor.store is not None
    assert cursor.store.entries_written == 1


async def test_many_holes_cost_little_per_entry_and_come_back_whole(bench: Bench) -> None:
    cursor = await new(bench)
    places = [Position(1, entry) for entry in range(1, 100_000, 2)]
    random.Random(5).shuffle(places)
    cursor.ack_individual(places[:20_000])
    await cursor.wait_persisted()
    assert cursor.store is not None
    start = cursor.store.bytes_written
    for number in range(300):
        cursor.ack_individual(places[20_000 + 10 * number : 20_010 + 10 * number])
        cursor.ack_batch(Position(1, 2 * number), [0b101])
        await cursor.wait_persisted()
    assert (cursor.store.bytes_written - start) / 300 < 800
    stored = bench.ledgers.stored[100]
    assert base_of(stored.entries[-1]) is not None
    found = await again(bench)
    assert found.ack_ranges() == cursor.ack_ranges()
    assert all(found.ack_set(Position(1, 2 * number)) == [0b101] for number in range(300))


async def test_a_full_ledger_is_followed_by_a_new_one_and_deleted() -> None:
    async with in_bench(config=SMALL) as bench:
        cursor = await new(bench)
        for entry in range(10):
            await acked(cursor, (1, entry))
            await trio.sleep(0.1)
            named = (await node(bench)).ledger_id
            assert bench.ledgers.listed() == {named}
            assert decode_chain(bench.ledgers.stored[named].entries[-1:]).mark_delete == Position(1, entry)
        assert named == 103
        assert (await again(bench)).mark_delete == Position(1, 9)


async def test_the_old_ledger_stays_until_the_new_one_has_an_entry() -> None:
    async with in_bench(config=SMALL) as bench:
        cursor = await new(bench)
        for entry in range(3):
            await acked(cursor, (1, entry))
        bench.ledgers.hold = True
        cursor.ack_individual(at((1, 3)))
        await trio.sleep(1)
        assert (await node(bench)).ledger_id == 101
        assert bench.ledgers.listed() == {100, 101}
        assert (await again(bench)).durable_mark_delete == Position(1, 2)


async def test_a_ledger_that_fails_is_replaced_and_nobody_notices(bench: Bench) -> None:
    cursor = await new(bench)
    await acked(cursor, (1, 0), (1, 5))
    writer = bench.ledgers.writers[100]
    writer.held = True
    answers: list[object] = []
    cursor.ack_individual(at((1, 1)))
    cursor.persisted(answers.append)
    bench.ledgers.failures["create"] = [NotEnoughBookiesError("none"), NotEnoughBookiesError("none")]
    writer.fail(LedgerWriteError("no quorum"))
    cursor.ack_individual(at((1, 7)))
    cursor.persisted(answers.append)
    await until(lambda: len(answers) == 2)
    assert answers == [None, None]
    found = await again(bench)
    assert (found.mark_delete, found.ack_ranges()) == (Position(1, 1), [(1, 5, 5), (1, 7, 7)])
    await until(lambda: bench.ledgers.listed() == {101})


async def test_a_position_that_cannot_be_stored_in_time_is_answered_so_and_stored_later() -> None:
    async with in_bench(config=SMALL) as bench:
        cursor = await new(bench)
        bench.ledgers.failures["create"] = [NotEnoughBookiesError("none")] * 8
        cursor.ack_individual(at((1, 0)))
        await raises(CursorPersistError, cursor.wait_persisted())
        assert cursor.durable_mark_delete == Position(1, -1)
        await until(lambda: cursor.durable_mark_delete == Position(1, 0))
        assert bench.fenced == []


@pytest.mark.parametrize("happened", [True, False])
async def test_a_write_of_unknown_outcome_is_looked_up(happened: bool, bench: Bench) -> None:
    async def test(bench: Bench) -> None:
        cursor = await new(bench)
        lost = MetadataUnavailableError("the answer was lost")
        bench.ledgers.failures["created" if happened else "create"] = [lost]
        await acked(cursor, (1, 0))
        assert bench.fenced == []
        assert (await again(bench)).mark_delete == Position(1, 0)
        await trio.sleep(1)
        assert bench.ledgers.listed() == {(await node(bench)).ledger_id}

    await test(bench)


@pytest.mark.parametrize("happened", [True, False])
async def test_a_write_that_nothing_was_learned_of_is_looked_up_when_the_metadata_are_back(happened, bench):
    cursor = await new(bench)
    bench.metadata.disconnect()
    if happened:
        bench.ledgers.failures["created"] = [MetadataUnavailableError("the answer was lost")]
    else:
        bench.ledgers.store.disconnect()
    cursor.ack_individual(at((1, 0)))
    await trio.sleep(0.5)
    assert bench.ledgers.failures.get("created", []) == []
    bench.metadata.reconnect()
    bench.ledgers.store.reconnect()
    await cursor.wait_persisted()
    assert bench.fenced == []
    assert (await again(bench)).mark_delete == Position(1, 0)
    await trio.sleep(1)
    assert bench.ledgers.listed() == {(await node(bench)).ledger_id}


async def test_a_close_looks_up_a_write_that_nothing_was_learned_of() -> None:
    async with in_bench(config=SMALL) as bench:
        cursor = await new(bench)
        bench.metadata.disconnect()
        bench.ledgers.failures["created"] = [MetadataUnavailableError("the answer was lost")]
        cursor.ack_individual(at((1, 0)))
        await raises(CursorPersistError, cursor.wait_persisted())
        cursor.ack_individual(at((1, 1)))
        bench.metadata.reconnect()
        assert cursor.store is not None
        await cursor.store.close()
        assert bench.fenced == []
        assert bench.ledgers.listed() == set()
        assert (await again(bench)).mark_delete == Position(1, 1)


async def test_a_node_changed_by_another_fences_the_cursor(bench: Bench) -> None:
    cursor = await new(bench)
    path = cursor_path(LOG_PATH, "sub")
    found = await node_at(bench.metadata, path)
    await MemoryStore(bench.tree).multi([Put(path=path, value=found.value, version=0)])
    cursor.ack_individual(at((1, 0)))
    await raises(CursorFencedError, cursor.wait_persisted())
    assert bench.fenced == ["fenced"]
    assert bench.ledgers.listed() == set()
    await raises(CursorFencedError, cursor.wait_persisted())


async def test_a_cursor_ledger_closed_by_others_is_left_for_a_new_one_while_the_log_is_ours(bench: Bench) -> None:
    cursor = await new(bench)
    await acked(cursor, (1, 0), (1, 5))
    bench.ledgers.close_by_others(100)
    await acked(cursor, (1, 1))
    assert bench.fenced == []
    await trio.sleep(1)
    assert bench.ledgers.listed() == {101}
    found = await again(bench)
    assert (found.mark_delete, found.ack_ranges()) == (Position(1, 1), [(1, 5, 5)])


async def test_a_broker_that_lost_the_log_does_not_touch_a_cursor_that_the_new_owner_has_read(bench: Bench) -> None:
    """OwnedWrites, for each write of the node: the first ledger, the next one, the close, a new cursor."""
    fresh, used, closing = [await new(bench, name) for name in ("fresh", "used", "closing")]
    await acked(used, (1, 0))
    await bench.metadata.put(LOG_PATH, b"another's", 0)
    nodes = [await node(bench, name) for name in ("fresh", "used", "closing")]
    found = await again(bench, "used")
    for cursor in (fresh, used):
        cursor.ack_individual(at((1, 1)))
        await raises(CursorFencedError, cursor.wait_persisted())
    closing.ack_individual(at((1, 1)))
    assert closing.store is not None
    await closing.store.close()
    await raises(CursorFencedError, new(bench, "another"))
    assert bench.fenced == ["fenced"] * 3
    assert [await node(bench, name) for name in ("fresh", "used", "closing")] == nodes
    assert found.mark_delete == Position(1, 0)
    assert bench.ledgers.listed() == {100}


async def test_a_list_that_we_changed_ourselves_meanwhile_holds_no_write_of_a_cursor_back(bench: Bench) -> None:
    cursor = await new(bench)
    await bench.metadata.put(LOG_PATH, b"", 0)
    await acked(cursor, (1, 0))
    await bench.metadata.put(LOG_PATH, b"", 1)
    assert cursor.store is not None
    await cursor.store.close()
    assert bench.fenced == []
    assert (await again(bench)).mark_delete == Position(1, 0)
    assert bench.list_version == 2


@pytest.mark.parametrize("step", ["open", "read"])
@pytest.mark.parametrize("error", [LedgerReadError("bookies away"), LedgerRecoveryError("bookies away")])
async def test_a_cursor_never_falls_back_because_bookies_are_away(step: str, error: Exception, bench: Bench) -> None:
    async def test(bench: Bench) -> None:
        cursor = await new(bench)
        await acked(cursor, (1, 0))
        bench.ledgers.failures[step] = [error]
        await raises(CursorRecoveryError, again(bench))
        assert (await again(bench)).mark_delete == Position(1, 0)

    await test(bench)


async def test_a_cursor_whose_ledger_is_gone_takes_the_snapshot_in_its_node(bench: Bench) -> None:
    cursor = await new(bench)
    await acked(cursor, (1, 0), (1, 4))
    await acked(cursor, (1, 1))
    await bench.ledgers.delete(100)
    found = await again(bench)
    assert (found.mark_delete, found.ack_ranges()) == (Position(1, 0), [(1, 4, 4)])
    await acked(found, (1, 1))
    assert (await again(bench)).mark_delete == Position(1, 1)


async def test_a_cursor_that_its_owner_moves_on_while_another_reads_it_is_not_taken_back_by_that_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = await new(bench)
    await acked(cursor, (1, 0))
    opened = bench.ledgers.open

    async def late(ledger_id: int, *, recover: bool) -> ReadOnlyLedger:
        monkeypatch.setattr(bench.ledgers, "open", opened)
        owners = await again(bench)
        await acked(owners, (1, 1))
        await until(lambda: ledger_id not in bench.ledgers.listed())
        return await opened(ledger_id, recover=recover)

    monkeypatch.setattr(bench.ledgers, "open", late)
    await raises(CursorFencedError, again(bench))
    assert (await again(bench)).mark_delete == Position(1, 1)


async def test_a_graceful_close_brings_the_state_into_the_node_and_deletes_the_ledger(bench: Bench) -> None:
    cursor = await new(bench)
    await acked(cursor, (1, 0), (1, 4))
    cursor.ack_batch(Position(1, 2), [0b100])
    assert cursor.store is not None
    await cursor.store.close()
    assert (await node(bench)).ledger_id == -1
    assert bench.ledgers.listed() == set()
    found = await again(bench)
    assert (found.mark_delete, found.ack_ranges()) == (Position(1, 0), [(1, 4, 4)])
    assert found.ack_set(Position(1, 2)) == [0b100]
    await raises(CursorClosedError, cursor.wait_persisted())


async def test_a_close_with_too_many_ranges_for_the_node_keeps_the_ledger() -> None:
    async with in_bench(config=replace(SMALL, node_ranges_max=9)) as bench:
        cursor = await new(bench)
        cursor.ack_individual([Position(1, entry) for entry in range(1, 21, 2)])
        assert cursor.store is not None
        await cursor.store.close()
        assert (await node(bench)).ledger_id == 100
        assert bench.ledgers.stored[100].last_entry_id == 0
        assert (await again(bench)).ack_ranges() == cursor.ack_ranges()


async def test_a_close_that_fails_loses_nothing_that_was_durable(bench: Bench) -> None:
    cursor = await new(bench)
    await acked(cursor, (1, 0))
    bench.metadata.disconnect()
    assert cursor.store is not None
    await raises(MetadataUnavailableError, cursor.store.close())
    bench.metadata.reconnect()
    assert (await again(bench)).mark_delete == Position(1, 0)


async def test_a_cursor_that_was_not_touched_writes_nothing_on_close(bench: Bench) -> None:
    cursor = await new(bench)
    assert cursor.store is not None
    await cursor.store.close()
    found = await node_at(bench.metadata, cursor_path(LOG_PATH, "sub"))
    assert found.version == 0


async def test_whatever_the_moment_of_a_crash_answered_acks_are_found_again() -> None:
    """A history of a cursor with failures; after each step another broker could take over."""
    async with in_bench(config=SMALL) as bench:
        rng = random.Random(11)
        cursor = await new(bench)
        answered: set[Position] = set()
        for _ in range(60):
            places = [Position(1, rng.randrange(200)) for _ in range(rng.randrange(1, 6))]
            kind = rng.randrange(6)
            if kind == 0:
                bench.ledgers.failures["create"] = [NotEnoughBookiesError("none")]
            elif kind == 1:
                bench.ledgers.failures["created"] = [MetadataUnavailableError("lost")]
            elif kind == 2 and bench.ledgers.writers:
                bench.ledgers.writers[max(bench.ledgers.writers)].fail(LedgerWriteError("no quorum"))
            cursor.ack_individual(places)
            outcome: list[CursorError | None] = []
            cursor.persisted(outcome.append)
            await until(partial(bool, outcome))
            assert outcome == [None]
            answered |= set(places)
            if kind == 5:
                cursor = await again(bench)
            assert all(cursor.is_acked(place) for place in answered)
        found = await again(bench)
        assert {place for entry in range(200) if found.is_acked(place := Position(1, entry))} == answered | {
            Position(1, entry) for entry in range(found.mark_delete.entry_id + 1)
        }
        assert all(found.is_acked(place) for place in answered)
        await trio.sleep(5)
        assert bench.ledgers.listed() <= set(found.store.ledger_ids() if found.store else [])


@pytest.mark.parametrize("has_ledger", [False, True])
async def test_properties_of_a_user_are_replaced_without_losing_an_ack(bench: Bench, has_ledger: bool) -> None:
    cursor = await new(bench)
    if has_ledger:
        await acked(cursor, (1, 0), (1, 5))
    cursor.ack_individual(at((1, 1), (1, 7)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cursor.set_cursor_properties, [("a", "b"), ("c", "")])
        nursery.start_soon(cursor.wait_persisted)
    found = await again(bench)
    assert found.cursor_properties == (("a", "b"), ("c", "")) == cursor.cursor_properties
    assert (found.mark_delete, found.ack_ranges()) == (cursor.mark_delete, cursor.ack_ranges())
    await acked(cursor, (1, 9))
    assert (await again(bench)).ack_ranges() == cursor.ack_ranges()
    assert not bench.fenced


async def test_properties_of_a_cursor_that_another_broker_has_are_not_replaced(bench: Bench) -> None:
    cursor = await new(bench)
    path = cursor_path(LOG_PATH, "sub")
    stored = await node_at(bench.metadata, path)
    await bench.metadata.multi([Put(path=path, value=stored.value, version=stored.version)])
    await raises(CursorFencedError, cursor.set_cursor_properties([("a", "b")]))
    assert bench.fenced
    assert (await again(bench)).cursor_properties == (("who", "me"),)


async def test_properties_whose_write_was_not_answered_cost_no_ack(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    cursor = await new(bench)
    await acked(cursor, (1, 0), (1, 5))
    write = bench.metadata.multi

    async def lose_the_answer(ops: Sequence[Op]) -> list[str]:
        await write(ops)
        monkeypatch.setattr(bench.metadata, "get", away)
        raise MetadataUnavailableError("the connection broke")

    async def away(path: str) -> None:
        raise MetadataUnavailableError("still away")

    monkeypatch.setattr(bench.metadata, "multi", lose_the_answer)
    await raises(CursorPersistError, cursor.set_cursor_properties([("a", "b")]))
    monkeypatch.undo()
    await cursor.set_cursor_properties([("a", "c")])
    assert cursor.store is not None
    assert cursor.store.node.empty_ledger_id == NO_LEDGER, "the ledger has an entry, which holds the state"
    found = await again(bench)
    assert (found.cursor_properties, found.ack_ranges()) == ((("a", "c"),), cursor.ack_ranges())
    await acked(cursor, (1, 7))
    assert (await again(bench)).ack_ranges() == cursor.ack_ranges()
    assert not bench.fenced

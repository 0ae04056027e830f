from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

import pytest
import trio

from cursors.config import CursorConfig
from cursors.cursor import Cursor
from cursors.doors import ReadOnlyLedger
from cursors.errors import (
    CursorError,
    CursorFencedError,
    CursorPersistError,
)
from cursors.opening import create_cursor, cursor_path, recover_cursor
from cursors.position_info import NO_LEDGER, CursorNode, base_of, decode_chain, decode_node
from quire.ledger.errors import LedgerWriteError, NotEnoughBookiesError
from quire.ledger.position import Position
from quire.metadata.errors import MetadataUnavailableError
from quire.metadata.store import Op
from tests.support.nodes import node_at
from tests.support.refusals import raises
from tests.support.waiting import until
from tests.unit.cursors.fake_log import LOG_NAME, LOG_PATH, Bench, acked, at, close, fake_log, in_bench

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
        await close(cursor)
    found = await again(bench)
    assert found.redeliveries.values == dict(zip(at((1, 3), (1, 5), (1, 9)), (1, 3, 1), strict=True))


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
    await close(closing)
    await raises(CursorFencedError, new(bench, "another"))
    assert bench.fenced == ["fenced"] * 3
    assert [await node(bench, name) for name in ("fresh", "used", "closing")] == nodes
    assert found.mark_delete == Position(1, 0)
    assert bench.ledgers.listed() == {100}


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

"""The index of delayed messages that is stored with a cursor (`cursor_store`, `entry_chain`, `cursor_recovery`)."""

from __future__ import annotations

import trio

from cursors.config import CursorConfig
from cursors.cursor import Cursor
from cursors.opening import create_cursor, recover_cursor
from quire.ledger.position import Position
from quire.wire.pulsar import MLDataFormats_pb2 as pb
from tests.unit.cursors.fake_log import LOG_NAME, LOG_PATH, Bench, at, fake_log, in_bench

LOG = fake_log((1, 100_000_000))
INDEX = b"index" * 1000
SMALL = CursorConfig(ensemble_size=1, write_quorum=1, ack_quorum=1, entries_max=3, retry_timeout_s=5)


async def new(bench: Bench) -> Cursor:
    return await create_cursor(bench.services, LOG, LOG_PATH, LOG_NAME, "sub", Position(1, -1), [], bench.on_fenced)


async def again(bench: Bench) -> Cursor:
    return await recover_cursor(bench.services, LOG, LOG_PATH, LOG_NAME, "sub", bench.on_fenced)


def entries(bench: Bench, ledger_id: int) -> list[pb.PositionInfo]:
    return [pb.PositionInfo.FromString(entry) for entry in bench.ledgers.stored[ledger_id].entries]


async def test_an_index_is_found_behind_a_chain_of_changes(bench: Bench) -> None:
    cursor = await new(bench)
    cursor.ack_individual(at(*((1, 5000 * number + 1) for number in range(200))))
    cursor.store_delayed_index(INDEX)
    await cursor.wait_persisted()
    for entry in range(3, 7):
        cursor.ack_individual(at((1, entry)))
        await cursor.wait_persisted()
    assert entries(bench, 100)[-1].quireAcks.HasField("baseEntryId")
    found = await again(bench)
    assert found.delayed_index == INDEX
    assert found.is_acked(Position(1, 6))


async def test_the_first_entry_of_each_next_ledger_has_the_index_and_no_ledger_is_left_over() -> None:
    async with in_bench(config=SMALL) as bench:
        cursor = await new(bench)
        cursor.store_delayed_index(INDEX)
        for entry in range(10):
            cursor.ack_individual(at((1, entry)))
            await cursor.wait_persisted()
            found = await again(bench)
            assert (found.mark_delete, found.delayed_index) == (Position(1, entry), INDEX)
        await trio.sleep(1)
        assert bench.ledgers.listed() == {cursor.store.ledger_id} if cursor.store else False


async def test_a_kill_before_the_index_is_durable_leaves_the_one_before_and_every_ack(bench: Bench) -> None:
    cursor = await new(bench)
    cursor.store_delayed_index(INDEX)
    cursor.ack_individual(at((1, 0)))
    await cursor.wait_persisted()
    bench.ledgers.writers[100].held = True
    cursor.store_delayed_index(b"newer")
    cursor.persisted(lambda error: None)
    bench.ledgers.close_by_others(100)
    found = await again(bench)
    assert found.mark_delete == Position(1, 0)
    assert found.delayed_index in (INDEX, b"newer")

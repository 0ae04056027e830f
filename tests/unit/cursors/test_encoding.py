"""cursors.encoding: a cursor with as many half-acknowledged batches as are allowed is written in short steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from cursors import cursor_store, position_info
from cursors.ack_state import BATCHES_MAX, AckState
from cursors.batch_acks import PAGE, BatchPage
from cursors.cursor import Cursor
from cursors.encoding import STEP_COST, encode_pages
from cursors.opening import create_cursor, recover_cursor
from quire.ledger.errors import LedgerWriteError
from quire.ledger.position import Position
from tests.unit.cursors.fake_log import LOG_NAME, LOG_PATH, Bench, fake_log

LOG = fake_log((1, 100_000_000))


class Encoded(trio.abc.Instrument):
    """Most batches that were encoded in one step of the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.most = self.steps = 0
        monkeypatch.setattr(position_info, "_own_page", self._counting(position_info._own_page))
        monkeypatch.setattr(position_info, "_public_page", self._counting(position_info._public_page))

    def _counting(self, encode: Callable[[BatchPage], bytes]) -> Callable[[BatchPage], bytes]:
        def counted(page: BatchPage) -> bytes:
            self.now += len(page.unacked)
            return encode(page)

        return counted

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.now = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.most = max(self.most, self.now)
        self.steps += self.now > 0


async def filled(bench: Bench, stride: int) -> Cursor:
    """Return a cursor with as many half-acknowledged batches as are allowed, so many entries apart."""
    made = await create_cursor(bench.services, LOG, LOG_PATH, LOG_NAME, "sub", Position(1, -1), [], bench.on_fenced)
    for number in range(BATCHES_MAX):
        made.ack_batch(Position(1, stride * number + 1), [0b1011])
    return made


async def found(bench: Bench) -> Cursor:
    return await recover_cursor(bench.services, LOG, LOG_PATH, LOG_NAME, "sub", bench.on_fenced)


@pytest.mark.parametrize("stride", [2, 900], ids=["side by side", "far apart"])
async def test_a_base_of_changed_pages_is_encoded_in_short_steps(
    stride: int, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = await filled(bench, stride)
    encoded = Encoded(monkeypatch)
    trio.lowlevel.add_instrument(encoded)
    await cursor.wait_persisted()
    trio.lowlevel.remove_instrument(encoded)
    assert encoded.most <= STEP_COST + PAGE
    assert encoded.steps >= BATCHES_MAX // (STEP_COST + PAGE)
    again = await found(bench)
    assert all(again.ack_set(Position(1, stride * number + 1)) == [0b1011] for number in range(BATCHES_MAX))


async def test_what_is_acknowledged_while_pages_are_encoded_is_in_the_entry(bench: Bench) -> None:
    cursor = await filled(bench, 2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cursor.wait_persisted)
        for number in range(20):
            await trio.lowlevel.checkpoint()
            cursor.ack_batch(Position(1, 2 * 4096 * number + 1), [0b1000])
    await cursor.wait_persisted()
    again = await found(bench)
    assert all(again.ack_set(Position(1, 2 * 4096 * number + 1)) == [0b1000] for number in range(20))
    assert again.ack_set(Position(1, 3)) == [0b1011]


async def test_a_ledger_that_fails_while_pages_are_encoded_is_left_for_another(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = await filled(bench, 2)
    failed: list[int] = []

    async def encode(state: AckState) -> None:
        if not failed:
            [writer] = bench.ledgers.writers.values()
            failed.append(writer.ledger_id)
            writer.fail(LedgerWriteError("lost"))
        await encode_pages(state)

    monkeypatch.setattr(cursor_store, "encode_pages", encode)
    await cursor.wait_persisted()
    assert failed == [100]
    assert cursor.store is not None
    assert cursor.store.ledger_id == 101
    assert (await found(bench)).ack_set(Position(1, 3)) == [0b1011]

from __future__ import annotations

import random
from functools import partial

import pytest
import trio
import trio.lowlevel
import trio.testing

from cursors.ack_state import AckState
from cursors.position_info import CursorNode, encode_node
from managed_ledger.errors import (
    ManagedLedgerFencedError,
)
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.stored_list import log_path
from managed_ledger.writing.state import State
from quire.ledger.errors import LedgerWriteError, NotEnoughBookiesError
from quire.ledger.position import EARLIEST, LATEST, Position
from quire.metadata.errors import MetadataUnavailableError
from tests.support.refusals import raises
from tests.support.waiting import until
from tests.unit.managed_ledger.cluster import NAME, Cluster, append, kill, numbered, publish, read_all
from tests.unit.managed_ledger.fake_ledgers import FakeWriter, Sink


def current(cluster: Cluster, log: ManagedLedger) -> FakeWriter:
    return cluster.ledgers.writers[log.ledgers[-1].ledger_id]


async def test_a_payload_that_waits_for_a_ledger_survives_the_reuse_of_its_buffer(log: ManagedLedger) -> None:
    buffer = bytearray(b"%02d" * 0 + b"".join(b"%02d" % n for n in range(25)))
    view = memoryview(buffer)
    sink = append(log, [view[2 * n : 2 * n + 2] for n in range(25)])
    buffer[:] = bytes(50)
    await until(lambda: sink.count == 25)
    assert await read_all(log) == [b"%02d" % n for n in range(25)]


def is_open(log: ManagedLedger) -> bool:
    return log.state is State.OPEN


def all_confirmed(sinks: list[tuple[Sink, list[bytes]]]) -> bool:
    return all(sink.count == len(payloads) for sink, payloads in sinks)


async def test_consumers_at_the_end_of_the_log_cause_no_ledger_read_and_leave_nothing_in_the_cache(cluster: Cluster):
    async with cluster.broker(entries_max=1000) as factory:
        log = await factory.open(NAME)
        cursors = [await log.open_cursor(name, initial="earliest") for name in ("a", "b")]
        cursors.append(log.new_reader_cursor(LATEST))
        got: dict[str, list[bytes]] = {cursor.name: [] for cursor in cursors}

        def pump() -> None:
            for cursor in cursors:
                while True:
                    run = log.read_cached(cursor.read_position, 100, 1 << 20)
                    if run is None:
                        break
                    got[cursor.name] += [bytes(payload) for payload in run.payloads]
                    end = Position(run.ledger_id, run.first_entry_id + len(run.payloads) - 1)
                    cursor.read_position = log.next_position(end)

        log.add_waiter(pump)
        log.add_waiter(pump)
        for number in range(50):
            await publish(log, *numbered(10 * number, 10))
        assert all(found == numbered(0, 500) for found in got.values())
        assert log.ledger_reads[0] == 0
        assert cluster.ledgers.reads == []
        assert factory.budget.used == 0
        log.remove_waiter(pump)


async def test_readers_of_the_same_place_share_one_ledger_read(cluster: Cluster, log: ManagedLedger) -> None:
    await publish(log, *numbered(0, 25))
    for _ in range(3):
        log.new_reader_cursor(EARLIEST)
    cluster.ledgers.delay_s = 0.1
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(log.read, Position(0, 0), 100, 1 << 20)
    assert cluster.ledgers.reads == [(0, 0, 9)]
    assert log.ledger_reads[0] == 1


async def test_a_cursor_whose_making_was_not_heard_of_is_found_again(cluster: Cluster) -> None:
    async with cluster.broker() as factory, cluster.broker() as other:
        log = await factory.open(NAME)
        await publish(log, *numbered(0, 3))
        value = encode_node(CursorNode(), AckState(log, Position(0, 1)), count_max=0)
        await cluster.metadata.create(f"{log_path(NAME)}/sub", value)
        cursor = await log.open_cursor("sub", initial="earliest")
        assert cursor.mark_delete == Position(0, 1)
        await cluster.metadata.create(f"{log_path(NAME)}/late", value)
        await other.open(NAME)
        await raises(ManagedLedgerFencedError, log.open_cursor("late"))
        assert log.state is State.FENCED


@pytest.mark.parametrize("delay_s", [0.0, 0.003, 0.3])
async def test_a_cursor_deleted_soon_after_its_first_ack_leaves_no_ledger(delay_s: float, cluster: Cluster) -> None:
    """The log is closed at each moment of the creation of its ledger."""

    async def test(cluster: Cluster) -> None:
        async with cluster.broker(age_min_minutes=10) as factory:
            log = await factory.open(NAME)
            await publish(log, *numbered(0, 1))
            for number in range(30):
                cursor = await log.open_cursor("sub", initial="earliest")
                cursor.ack_individual([Position(0, 0)])
                cluster.ledgers.delay_s = delay_s
                await trio.sleep(0.001 * number)
                await log.delete_cursor("sub")
                cluster.ledgers.delay_s = 0
            await trio.sleep(1)
            assert cluster.ledgers.listed() == {0}

    await test(cluster)


async def test_whatever_fails_every_confirmed_entry_is_read_once_and_in_order(cluster: Cluster) -> None:
    """AllAckedEntriesAreReadable, NoOutOfOrderEntries: a history of appends, failures, rollovers and changes of
    the owner."""
    rng = random.Random(9)
    confirmed: list[bytes] = []
    number = 0
    for _ in range(12):
        async with cluster.broker() as factory:
            log = await factory.open(NAME)
            for _ in range(10):
                sinks = []
                for _ in range(rng.randrange(1, 4)):
                    count = rng.randrange(1, 9)
                    sink = append(log, numbered(number, count))
                    sinks.append((sink, numbered(number, count)))
                    number += count
                kind = rng.randrange(6)
                await until(partial(is_open, log))
                writer = current(cluster, log)
                if kind == 0:
                    writer.confirm(rng.randint(-1, writer.last_pushed))
                    writer.store(rng.randint(-1, writer.last_pushed))
                    writer.fail(LedgerWriteError("no quorum"))
                elif kind == 1:
                    cluster.ledgers.failures["create"] = [NotEnoughBookiesError("none")]
                elif kind == 2:
                    cluster.ledgers.failures["created"] = [MetadataUnavailableError("lost")]
                elif kind == 3:
                    cluster.ledgers.failures["close"] = [MetadataUnavailableError("lost")]
                with trio.fail_after(10):
                    await until(partial(all_confirmed, sinks))
                for sink, payloads in sinks:
                    assert not sink.errors
                    assert len(sink.ids()) == len(payloads)
                    confirmed += payloads
                assert await read_all(log) == confirmed
                cluster.ledgers.failures.clear()
            if rng.random() < 0.5:
                kill(factory)
                await trio.lowlevel.checkpoint()
    async with cluster.broker() as factory:
        assert await read_all(await factory.open(NAME)) == confirmed
        await trio.sleep(1)
        assert cluster.ledgers.listed() == await cluster.named_ledgers()

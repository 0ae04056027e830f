"""The end of a log, and of what it stores: terminate and truncate."""

from __future__ import annotations

import pytest
import trio

from managed_ledger.errors import (
    ManagedLedgerError,
    ManagedLedgerFencedError,
    ManagedLedgerTerminatedError,
    ManagedLedgerUnavailableError,
)
from managed_ledger.writing.state import State
from quire.ledger.errors import LedgerRecoveryError
from quire.ledger.position import Position
from quire.metadata.errors import MetadataUnavailableError
from tests.support.refusals import raises
from tests.unit.managed_ledger.cluster import NAME, append, in_cluster, kill, numbered, publish, read_all
from tests.unit.managed_ledger.fake_ledgers import Sink


@pytest.mark.parametrize("count", [0, 3, 13])
@pytest.mark.parametrize("reopened", [False, True])
async def test_a_terminated_log_ends_behind_everything_and_for_the_next_owner_too(count: int, reopened: bool) -> None:
    async with in_cluster() as cluster:
        async with cluster.broker(entries_max=5) as factory:
            log = await factory.open(NAME)
            await log.open_cursor("s", initial="earliest")
            if count:
                await publish(log, *numbered(0, count))
            if reopened:
                await log.close()
                log = await factory.open(NAME)
            last = log.last_confirmed
            await log.terminate()
            assert (log.state, log.last_confirmed) == (State.TERMINATED, last)
            assert (await cluster.stored_list()).terminated == last
            assert await read_all(log) == numbered(0, count)
            sink = append(log, [b"late"])
            assert isinstance(sink.errors[0], ManagedLedgerTerminatedError)
            await log.terminate()
            kill(factory)
        async with cluster.broker() as factory:
            log = await factory.open(NAME)
            assert (log.state, log.last_confirmed) == (State.TERMINATED, last)
            assert await read_all(log) == numbered(0, count)
            assert log.cursors["s"].backlog() == count


async def test_what_was_sent_before_the_end_is_confirmed_and_what_came_later_is_refused() -> None:
    async with in_cluster() as cluster, cluster.broker() as factory:
        log = await factory.open(NAME)
        await publish(log, b"0")
        before, later = Sink(), Sink()
        log.append([b"1", b"2"], before)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.terminate)
            while log.state is State.OPEN:
                await trio.lowlevel.checkpoint()
            log.append([b"3"], later)
        assert before.count == 2
        assert isinstance(later.errors[0], ManagedLedgerTerminatedError)
        assert await read_all(log) == numbered(0, 3)


async def test_a_log_whose_ledger_cannot_be_closed_is_not_terminated() -> None:
    async with in_cluster() as cluster, cluster.broker() as factory:
        log = await factory.open(NAME)
        await publish(log, b"0")
        cluster.ledgers.failures["close"] = [LedgerRecoveryError("bookies away")]
        await raises(ManagedLedgerUnavailableError, log.terminate())
        assert (await cluster.stored_list()).terminated is None
        await publish(log, b"1")
        await log.terminate()
        assert await read_all(log) == numbered(0, 2)


async def test_nothing_is_written_behind_an_end_that_may_be_stored() -> None:
    """The answer of the write that stores the end is lost: the log is left, and read again by the next open."""
    async with in_cluster() as cluster:
        async with cluster.broker() as factory:
            log = await factory.open(NAME)
            await publish(log, b"0")
            session = cluster.stores[-1]
            points = 0

            async def lose_the_answer() -> None:
                nonlocal points
                points += 1
                if points == 2:  # behind the write
                    session.disconnect()
                    raise MetadataUnavailableError("the connection broke")

            session.point = lose_the_answer
            await raises(ManagedLedgerFencedError, log.terminate())
            sink = append(log, [b"late"])
            assert isinstance(sink.errors[0], ManagedLedgerFencedError)
            session.reconnect()
            kill(factory)
        async with cluster.broker() as factory:
            log = await factory.open(NAME)
            assert log.state is State.TERMINATED
            assert await read_all(log) == [b"0"]


async def test_a_log_that_another_broker_has_is_not_terminated() -> None:
    async with in_cluster() as cluster, cluster.broker() as first, cluster.broker() as second:
        log = await first.open(NAME)
        await publish(log, b"0")
        other = await second.open(NAME)
        await raises(ManagedLedgerError, log.terminate())
        assert (await cluster.stored_list()).terminated is None
        await publish(other, b"1")


async def test_a_truncated_log_keeps_only_its_open_ledger_whatever_the_retention() -> None:
    async with in_cluster() as cluster, cluster.broker(entries_max=5, retention_minutes=-1, retention_mb=-1) as factory:
        log = await factory.open(NAME)
        cursor = await log.open_cursor("s", initial="earliest")
        await publish(log, *numbered(0, 13))
        assert await log.truncate() == 0, "nothing is consumed"
        cursor.skip_all()
        await cursor.wait_persisted()
        assert await log.trim() == 0, "it is retained"
        assert await log.truncate() == 2
        assert await read_all(log, Position(0, 0)) == numbered(10, 3)

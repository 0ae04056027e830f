"""The end of a log, and of what it stores: terminate and truncate."""

from __future__ import annotations

import pytest
import trio

from managed_ledger.errors import (
    ManagedLedgerFencedError,
    ManagedLedgerTerminatedError,
)
from managed_ledger.writing.state import State
from quire.metadata.errors import MetadataUnavailableError
from tests.support.refusals import raises
from tests.unit.managed_ledger.cluster import NAME, Cluster, append, in_cluster, kill, numbered, publish, read_all
from tests.unit.managed_ledger.fake_ledgers import Sink


@pytest.mark.parametrize("count", [0, 3, 13])
@pytest.mark.parametrize("reopened", [False, True])
async def test_a_terminated_log_ends_behind_everything_and_for_the_next_owner_too(count, reopened, cluster):
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


async def test_nothing_is_written_behind_an_end_that_may_be_stored(cluster: Cluster) -> None:
    """The answer of the write that stores the end is lost: the log is left, and read again by the next open."""
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

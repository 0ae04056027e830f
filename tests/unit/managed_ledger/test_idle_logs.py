"""Logs that are opened and not written to: they create no ledger, and are still owned, read and trimmed."""

from __future__ import annotations

import pytest
import trio

from managed_ledger.config import LogConfig
from managed_ledger.errors import ManagedLedgerFencedError
from managed_ledger.factory import TRIM_LEDGERS_MAX
from managed_ledger.stored_list import StoredList, log_path
from managed_ledger.writing.state import State
from quire.ledger.errors import NotEnoughBookiesError
from quire.ledger.position import EARLIEST, Position
from quire.metadata.errors import MetadataUnavailableError
from tests.support.nodes import node_at
from tests.support.refusals import raises
from tests.support.waiting import until
from tests.unit.managed_ledger.cluster import (
    CONFIG,
    NAME,
    Cluster,
    Session,
    append,
    kill,
    numbered,
    publish,
    read_all,
)
from tests.unit.managed_ledger.fake_ledgers import Sink


async def write(cluster: Cluster, *payloads: bytes) -> None:
    async with cluster.broker() as factory:
        await publish(await factory.open(NAME), *payloads)


@pytest.mark.parametrize("killed", [False, True])
async def test_a_log_that_is_only_opened_makes_no_ledger_and_leaves_none_to_close(killed: bool, cluster: Cluster):
    async with cluster.broker() as factory:
        await publish(await factory.open(NAME), *numbered(0, 3))
        if killed:
            kill(factory)
    for _ in range(3):
        async with cluster.broker() as factory:
            log = await factory.open(NAME)
            assert (log.last_confirmed, log.entry_count, log.state) == (Position(0, 2), 3, State.IDLE)
            assert await read_all(log) == numbered(0, 3)
    assert cluster.ledgers.listed() == await cluster.named_ledgers() == {0}
    assert (cluster.ledgers._next_id, len(cluster.ledgers.writers)) == (1, 1)


async def test_positions_of_a_log_without_an_open_ledger_are_those_it_had(cluster: Cluster) -> None:
    await write(cluster, *numbered(0, 12))
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        assert (log.first_position(), log.previous_position(log.first_position())) == (Position(0, 0), (0, -1))
        assert [log.last_entry_of(each) for each in (-1, 0, 1, 2)] == [None, 9, 1, None]
        assert log.next_position(EARLIEST) == Position(0, 0)
        assert log.next_position(Position(0, 9)) == Position(1, 0)
        latest = await log.open_cursor("latest", initial="latest")
        earliest = await log.open_cursor("earliest", initial="earliest")
        assert (latest.mark_delete, earliest.mark_delete) == (Position(1, 1), Position(0, -1))
        assert (latest.backlog(), earliest.backlog()) == (0, 12)
        await publish(log, b"next")
        assert (latest.backlog(), earliest.backlog()) == (1, 13)
        assert await read_all(log, latest.read_position) == [b"next"]
        assert await read_all(log) == [*numbered(0, 12), b"next"]


async def test_appends_that_come_while_the_first_ledger_is_made_keep_their_order(cluster: Cluster) -> None:
    await write(cluster, *numbered(0, 3))
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        cluster.ledgers.delay_s = 0.5
        sinks = []
        for number in range(3, 9, 2):
            sinks.append(Sink())
            log.append(numbered(number, 2), sinks[-1])
            await trio.sleep(0.2)
            assert (log.state, sinks[-1].count) == (State.SWITCHING, 0)
        await until(lambda: all(sink.count == 2 for sink in sinks))
        cluster.ledgers.delay_s = 0.0
        assert [sink.ids() for sink in sinks] == [[(1, 0), (1, 1)], [(1, 2), (1, 3)], [(1, 4), (1, 5)]]
        assert await read_all(log) == numbered(0, 9)


async def test_an_append_without_bookies_fails_in_time_and_the_next_one_makes_the_ledger(cluster: Cluster) -> None:
    await write(cluster, b"0")
    async with cluster.broker() as factory:
        log, sink = await factory.open(NAME), Sink()
        cluster.ledgers.failures["create"] = [NotEnoughBookiesError("none")] * 1000
        log.append([b"lost"], sink)
        with trio.fail_after(CONFIG.retry_timeout_s + 1):
            await until(lambda: bool(sink.errors))
        assert (log.state, log.last_confirmed) == (State.IDLE, Position(0, 0))
        cluster.ledgers.failures.clear()
        assert await publish(log, b"1") == [(1, 0)]
        assert await read_all(log) == [b"0", b"1"]


async def test_a_log_taken_over_from_another_owner_fences_it_although_no_ledger_is_made(cluster: Cluster) -> None:
    async with cluster.broker() as one, cluster.broker() as other, cluster.broker() as third:
        log = await one.open(NAME)
        await publish(log, *numbered(0, 3))
        taken = await other.open(NAME)
        sink = append(log, [b"late"])
        await until(lambda: log.state is State.FENCED)
        assert [type(error) for error in sink.errors] == [ManagedLedgerFencedError]
        # Neither has an open ledger now: only the list distinguishes the owners.
        last = await third.open(NAME)
        sink = append(taken, [b"late"])
        await until(lambda: taken.state is State.FENCED)
        assert [type(error) for error in sink.errors] == [ManagedLedgerFencedError]
        await publish(last, b"3")
        assert await read_all(last) == numbered(0, 4)
        assert cluster.ledgers.listed() == await cluster.named_ledgers()


async def test_of_two_owners_whose_lists_would_be_equal_the_one_that_did_not_hear_finds_out_that_it_is_none(cluster):
    """Both store the list that they have read: one is answered, and the write of the other never arrives."""
    await write(cluster, *numbered(0, 3))
    session = Session(cluster.tree)
    mine = StoredList(session, cluster.ledgers, lambda: LogConfig.of(CONFIG), NAME)
    theirs = StoredList(cluster.metadata, cluster.ledgers, lambda: LogConfig.of(CONFIG), NAME)
    assert await mine.read()
    assert await theirs.read()
    assert mine.value == theirs.value

    async def lose() -> None:
        session.point = None
        await theirs.put(theirs.value.taken_over(2))
        raise MetadataUnavailableError("no answer came")

    session.point = lose
    await raises(ManagedLedgerFencedError, mine.put(mine.value.taken_over(1)))
    assert (await cluster.stored_list()).opening == 2


async def test_each_open_stores_a_list_that_no_other_stores(cluster: Cluster) -> None:
    await write(cluster, *numbered(0, 3))
    values = set()
    async with cluster.broker() as factory:
        for _ in range(3):
            await (await factory.open(NAME)).close()
            node = await node_at(cluster.metadata, log_path(NAME))
            values.add(node.value)
    assert len(values) == 3


async def test_the_first_append_after_an_open_trims_nothing(cluster: Cluster) -> None:
    await write(cluster, *numbered(0, 12))
    async with cluster.broker(retention_minutes=0, retention_mb=0) as factory:
        log = await factory.open(NAME)
        await publish(log, b"12")
        await trio.sleep(5)
        assert await read_all(log) == numbered(0, 13)


async def test_an_idle_wholly_consumed_log_is_trimmed_when_its_last_entry_is_acknowledged(cluster: Cluster) -> None:
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        await log.open_cursor("sub", initial="earliest")
        await publish(log, *numbered(0, 12))
    async with cluster.broker(retention_minutes=0, retention_mb=0) as factory:
        log = await factory.open(NAME)
        cursor = log.cursors["sub"]
        cursor.ack_cumulative(Position(1, 0))
        await trio.sleep(1)
        assert await cluster.named_ledgers() == {1}
        assert log.state is State.IDLE
        cursor.ack_individual([Position(1, 1)])
        await trio.sleep(1)
        assert (log.state, log.last_confirmed) == (State.OPEN, Position(1, 1))
        assert await publish(log, b"12") == [(3, 0)], "behind the cursor's"
        assert cursor.backlog() == 1
    assert 1 not in cluster.ledgers.listed()
    assert await cluster.named_ledgers() == {3}


async def test_an_idle_wholly_consumed_log_is_trimmed_when_its_retention_is_over(cluster: Cluster) -> None:
    await write(cluster, *numbered(0, 3))
    async with cluster.broker(retention_minutes=5, retention_mb=-1) as factory:
        log = await factory.open(NAME)
        await trio.sleep(4 * 60)
        assert (cluster.ledgers.listed(), log.state) == ({0}, State.IDLE)
        await trio.sleep(4 * 60)
        assert cluster.ledgers.listed() == await cluster.named_ledgers() == {1}
        assert (log.last_confirmed, log.entry_count) == (Position(0, 2), 0)


async def test_a_trim_of_an_idle_log_that_gets_no_ledger_deletes_nothing_and_is_done_later(cluster: Cluster) -> None:
    await write(cluster, *numbered(0, 3))
    async with cluster.broker(retention_minutes=0, retention_mb=0, retention_check_s=60) as factory:
        log = await factory.open(NAME)
        cluster.ledgers.failures["create"] = [NotEnoughBookiesError("none")] * 1000
        await trio.sleep(62 + CONFIG.retry_timeout_s)
        assert (cluster.ledgers.listed(), log.state) == ({0}, State.IDLE)
        assert await read_all(log) == numbered(0, 3)
        cluster.ledgers.failures.clear()
        await trio.sleep(60)
        assert cluster.ledgers.listed() == await cluster.named_ledgers() == {1}


async def test_of_many_idle_logs_a_few_in_a_second_make_a_ledger_to_be_trimmed(cluster: Cluster) -> None:
    names = [f"{NAME}-{number}" for number in range(2 * TRIM_LEDGERS_MAX)]
    async with cluster.broker() as factory:
        for name in names:
            await publish(await factory.open(name), b"x")
    assert cluster.ledgers._next_id == len(names)
    async with cluster.broker(retention_minutes=0, retention_mb=0, retention_check_s=60) as factory:
        for name in names:
            await factory.open(name)
        made = []
        await trio.sleep(59.5)
        for _ in range(5):
            made.append(cluster.ledgers._next_id - len(names))
            await trio.sleep(1)
        assert made == [0, TRIM_LEDGERS_MAX, len(names), len(names), len(names)]
        assert cluster.ledgers.listed() == {*range(len(names), 2 * len(names))}


async def test_a_log_whose_ledgers_are_all_empty_gets_one_at_its_open(cluster: Cluster) -> None:
    async with cluster.broker() as factory:
        await factory.open(NAME)
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        assert (log.state, log.last_confirmed) == (State.OPEN, Position(1, -1))
        await node_at(cluster.metadata, log_path(NAME))
        assert (await cluster.stored_list()).opening == 0

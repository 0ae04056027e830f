"""Logs that are opened and not written to: they create no ledger, and are still owned, read and trimmed."""

from __future__ import annotations

import trio

from managed_ledger.config import LogConfig
from managed_ledger.errors import ManagedLedgerClosedError, ManagedLedgerFencedError
from managed_ledger.factory import TRIM_LEDGERS_MAX
from managed_ledger.stored_list import StoredList, log_path
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
    numbered,
    publish,
    read_all,
)


async def write(cluster: Cluster, *payloads: bytes) -> None:
    async with cluster.broker() as factory:
        await publish(await factory.open(NAME), *payloads)


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


async def test_a_log_that_was_only_read_is_closed_in_one_step_and_without_a_write(cluster: Cluster) -> None:
    async def stored() -> list[object]:
        return [await node_at(cluster.metadata, path) for path in (log_path(NAME), f"{log_path(NAME)}/sub")]

    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        await publish(log, *numbered(0, 3))
        await log.open_cursor("sub", initial="earliest")
        assert not log.close_at_once(), "it has an open ledger"
        assert log.is_usable
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        log.cursors["sub"].ack_individual([Position(0, 0)])
        assert not log.close_at_once(), "an acknowledgement is to be stored"
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        assert log.cursors["sub"].mark_delete == Position(0, 0)
        before = await stored()
        assert log.close_at_once()
        assert (log.is_usable, log.closed.is_set(), factory.managed_ledgers) == (False, True, {})
        await raises(ManagedLedgerClosedError, log.read(Position(0, 0), 1, 100))
        assert await stored() == before
        assert await read_all(await factory.open(NAME)) == numbered(0, 3)


async def test_a_log_that_makes_a_ledger_is_not_closed_in_one_step(cluster: Cluster) -> None:
    await write(cluster, *numbered(0, 3))
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        sink = append(log, [b"next"])
        assert not log.close_at_once()
        await until(lambda: sink.count == 1)

"""A broker is killed at every point at which an operation is half done: between closing a ledger and writing the list,
between creating a ledger and its first entry, during the rollover of a cursor, a deletion, a trim or an open.

Each story runs once per point, from the start, in a new world; another broker then opens the log.
"""

from __future__ import annotations

import pytest
import trio

from managed_ledger.errors import NoSuchManagedLedgerError
from managed_ledger.factory import ManagedLedgerFactory
from managed_ledger.stored_list import log_path
from quire.ledger.position import Position
from tests.unit.managed_ledger.cluster import NAME, Cluster, kill, numbered, publish, read_all
from tests.unit.managed_ledger.killing import Tale, killed_everywhere


async def open_and_check(cluster: Cluster, tale: Tale) -> None:
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        await tale.check(log)
        assert await publish(log, b"after")


async def make(factory: ManagedLedgerFactory, tale: Tale) -> None:
    log = await factory.open(NAME)
    cursor = await log.open_cursor("sub", initial="earliest")
    await tale.publish(log, numbered(0, 25))
    cursor.ack_individual([Position(0, 0)])
    await cursor.wait_persisted()
    tale.answered = Position(0, 0)


async def test_between_a_ledgers_close_and_the_list_and_at_every_other_point_of_a_roll() -> None:
    async def story(factory: ManagedLedgerFactory, tale: Tale) -> None:
        log = await factory.open(NAME)
        for number in range(9):
            # The third run creates the next ledger ahead, the fourth rolls over.
            await tale.publish(log, numbered(3 * number, 3))

    assert await killed_everywhere(story, open_and_check) >= 12


async def test_between_a_ledgers_making_and_the_list_and_at_every_other_point_of_a_roll_without_a_ledger_ahead() -> (
    None
):
    async def story(factory: ManagedLedgerFactory, tale: Tale) -> None:
        await tale.publish(await factory.open(NAME), numbered(0, 35))

    assert await killed_everywhere(story, open_and_check) > 12


async def test_during_an_open() -> None:
    async def crash(factory: ManagedLedgerFactory, tale: Tale) -> None:
        await make(factory, tale)
        kill(factory)

    async def story(factory: ManagedLedgerFactory, tale: Tale) -> None:
        await factory.open(NAME)

    assert await killed_everywhere(story, open_and_check, crash) >= 4


async def test_during_a_cursors_change_of_ledger_it_has_its_old_state_or_the_new_one_and_never_none() -> None:
    async def story(factory: ManagedLedgerFactory, tale: Tale) -> None:
        log = await factory.open(NAME)
        cursor = await log.open_cursor("sub", initial="earliest")
        await tale.publish(log, numbered(0, 9))
        for entry in range(9):  # five entries per cursor ledger
            cursor.ack_individual([Position(0, entry)])
            await cursor.wait_persisted()
            tale.answered = Position(0, entry)

    async def sequel(cluster: Cluster, tale: Tale) -> None:
        async with cluster.broker() as factory:
            log = await factory.open(NAME)
            if tale.answered.ledger_id >= 0:
                found = log.cursors["sub"].mark_delete
                assert tale.answered <= found <= Position(0, tale.answered.entry_id + 1)
            await tale.check(log)

    assert await killed_everywhere(story, sequel, entries_max=100) >= 10


async def test_during_a_close() -> None:
    async def story(factory: ManagedLedgerFactory, tale: Tale) -> None:
        await make(factory, tale)
        await factory.managed_ledgers[NAME].close()

    async def sequel(cluster: Cluster, tale: Tale) -> None:
        async with cluster.broker() as factory:
            log = await factory.open(NAME)
            await tale.check(log)
            if tale.answered.ledger_id >= 0:
                assert log.cursors["sub"].mark_delete == tale.answered

    assert await killed_everywhere(story, sequel) > 15


async def test_during_the_deletion_of_a_subscription_it_is_there_whole_or_gone() -> None:
    async def story(factory: ManagedLedgerFactory, tale: Tale) -> None:
        await make(factory, tale)
        await factory.managed_ledgers[NAME].delete_cursor("sub")
        tale.done.append("deleted")

    async def sequel(cluster: Cluster, tale: Tale) -> None:
        async with cluster.broker() as factory:
            log = await factory.open(NAME)
            if tale.done:
                assert "sub" not in log.cursors, "it is back from the dead"
            elif "sub" in log.cursors:
                if tale.answered.ledger_id >= 0:
                    assert log.cursors["sub"].mark_delete == tale.answered
                await log.delete_cursor("sub")
            await tale.check(log)
            assert (await log.open_cursor("sub", initial="earliest")).backlog() == log.entry_count

    assert await killed_everywhere(story, sequel) > 15


@pytest.mark.parametrize("opened_between", [False, True])
async def test_the_deletion_of_a_log_is_ended_by_asking_again_and_nothing_comes_back(opened_between: bool) -> None:
    async def story(factory: ManagedLedgerFactory, tale: Tale) -> None:
        await make(factory, tale)
        await factory.delete(NAME)
        tale.done.append("deleted")

    async def sequel(cluster: Cluster, tale: Tale) -> None:
        async with cluster.broker() as factory:
            if opened_between and not tale.done:
                log = await factory.open(NAME)
                assert await read_all(log) in ([], tale.confirmed)
            try:
                await factory.delete(NAME)
                assert not tale.done, "it is back from the dead"
            except NoSuchManagedLedgerError:
                pass
            assert cluster.ledgers.listed() == set()
            assert await cluster.metadata.get(log_path(NAME)) is None
            log = await factory.open(NAME)
            assert (await read_all(log), log.cursors) == ([], {})

    assert await killed_everywhere(story, sequel) > 20


async def test_during_a_trim_nothing_that_somebody_needs_is_lost() -> None:
    async def story(factory: ManagedLedgerFactory, tale: Tale) -> None:
        log = await factory.open(NAME)
        cursor = log.cursors["sub"]
        cursor.ack_cumulative(Position(1, 4))
        await cursor.wait_persisted()
        await trio.sleep(1)
        tale.done.append("trimmed")

    async def sequel(cluster: Cluster, tale: Tale) -> None:
        confirmed = tale.confirmed
        tale.sinks.clear()
        async with cluster.broker() as factory:
            log = await factory.open(NAME)
            found = await tale.check(log)
            assert found in (confirmed, confirmed[10:])
            if tale.done:
                assert found == confirmed[10:]

    assert await killed_everywhere(story, sequel, make, retention_minutes=0, retention_mb=0) > 8

"""managed_ledger/tiers.py, leaving.py: ledgers read from objects, deleted from bookies, and opened without them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from managed_ledger import leaving
from managed_ledger.errors import ManagedLedgerReadError, OffloadRefusedError
from managed_ledger.factory import ManagedLedgerFactory
from managed_ledger.ledger_list import LedgerInfo, LedgerList, encode
from managed_ledger.list_check import check_lists
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.offloading import (
    closed_ledgers,
    completed,
    due_to_leave,
    is_in_object,
    left,
    prepared,
    released,
    state_of,
)
from managed_ledger.stored_list import log_path
from quire.ledger.position import Position
from tests.support.refusals import refuses
from tests.support.waiting import until
from tests.unit.managed_ledger.cluster import NAME, Cluster, kill, numbered, publish, read_all
from tests.unit.managed_ledger.fake_objects import DRIVER, FakeObjects, offload, uid_of
from tests.unit.managed_ledger.killing import Tale, killed_everywhere


@pytest.fixture
def objects() -> FakeObjects:
    return FakeObjects()


async def filled(factory: ManagedLedgerFactory, count: int = 35) -> ManagedLedger:
    """Return a log of ledgers of ten entries."""
    log = await factory.open(NAME)
    for first in range(0, count, 5):
        await publish(log, *numbered(first, 5))
    return log


async def leave(factory: ManagedLedgerFactory, objects: FakeObjects) -> None:
    """Run one round of the deletion."""
    await leaving.Leaving(factory._services, objects, factory.managed_ledgers.values).go_round()


async def test_a_ledger_is_read_from_its_object_and_from_bookies_if_that_fails(
    cluster: Cluster, objects: FakeObjects
) -> None:
    async with cluster.broker(objects=objects) as factory:
        log = await filled(factory)
        assert await read_all(log) == numbered(0, 35)
        assert objects.reads == []
        await offload(log, cluster.ledgers, objects, 0, 1)
        log.forget_readers([0, 1])
        cluster.ledgers.reads.clear()
        assert await read_all(log) == numbered(0, 35)
        assert {ledger for ledger, _ in objects.reads} == {0, 1}
        assert not {ledger for ledger, _, _ in cluster.ledgers.reads} & {0, 1}

        objects.damaged.add(str(uid_of(0)))
        objects.reads.clear()
        assert await read_all(log) == numbered(0, 35)
        assert {ledger for ledger, _ in objects.reads} == {1}
        assert 0 in {ledger for ledger, _, _ in cluster.ledgers.reads}
        objects.damaged.clear()
        assert await read_all(log, Position(0, 3)) == numbered(3, 32)
        assert {ledger for ledger, _ in objects.reads} == {1}, "what has failed is not tried at each read"


async def test_bookies_are_first_if_so_configured_and_the_object_if_they_fail(
    cluster: Cluster, objects: FakeObjects
) -> None:
    objects.are_first = False
    async with cluster.broker(objects=objects) as factory:
        log = await filled(factory)
        await offload(log, cluster.ledgers, objects, 0)
        assert await read_all(log) == numbered(0, 35)
        assert objects.reads == []
        del cluster.ledgers.stored[0]
        log.forget_readers([0])
        assert await read_all(log) == numbered(0, 35)
        assert {ledger for ledger, _ in objects.reads} == {0}


async def test_a_ledger_leaves_its_bookies_after_the_lag_and_only_if_its_object_is_whole(
    cluster: Cluster, objects: FakeObjects
) -> None:
    async with cluster.broker(objects=objects) as factory:
        log = await filled(factory)
        await offload(log, cluster.ledgers, objects, 0, 1, 2)
        await leave(factory, objects)
        assert {0, 1, 2} <= cluster.ledgers.listed(), "a negative lag is never"
        objects.deletion_lag_ms = 60_000
        await leave(factory, objects)
        assert {0, 1, 2} <= cluster.ledgers.listed()
        await trio.sleep(61)
        objects.damaged.add(str(uid_of(0)))
        objects.stored[str(uid_of(1))][3] += b"?"
        deletion = leaving.Leaving(factory._services, objects, factory.managed_ledgers.values)
        await deletion.go_round()
        assert cluster.ledgers.listed() & {0, 1, 2} == {0, 1}
        stored = await cluster.stored_list()
        assert [state_of(info).bookkeeper_deleted for info in stored.ledgers[:3]] == [False, False, True]
        objects.stored[str(uid_of(1))][3] = objects.stored[str(uid_of(1))][3][:-1]
        assert await read_all(log) == numbered(0, 35)

        objects.damaged.clear()
        objects.verified.clear()
        await deletion.go_round()
        assert objects.verified == [], "what has failed is not read again at once"
        await trio.sleep(leaving.RETRY_S)
        await deletion.go_round()
        assert not cluster.ledgers.listed() & {0, 1, 2}
        assert await read_all(log) == numbered(0, 35)
        await publish(log, b"35")
    async with cluster.broker(objects=objects) as factory:
        assert await read_all(await factory.open(NAME)) == numbered(0, 36)


async def test_the_interval_of_retention_is_that_of_the_deletion(cluster: Cluster, objects: FakeObjects) -> None:
    objects.deletion_lag_ms = 0
    async with cluster.broker(objects=objects, retention_check_s=5) as factory:
        log = await filled(factory)
        await offload(log, cluster.ledgers, objects, 0)
        await until(lambda: 0 not in cluster.ledgers.listed())
        assert 1 in cluster.ledgers.listed()
        assert await read_all(log) == numbered(0, 35)


async def test_a_log_whose_last_ledger_is_only_in_an_object_opens_with_its_positions(
    cluster: Cluster, objects: FakeObjects
) -> None:
    objects.deletion_lag_ms = 0
    async with cluster.broker(objects=objects) as factory:
        log = await filled(factory, 20)
        cursor = await log.open_cursor("sub", initial="earliest")
        cursor.ack_individual([Position(0, entry) for entry in range(4)])
        await cursor.wait_persisted()
        await log.terminate()
        await offload(log, cluster.ledgers, objects, 0, 1)
        await trio.sleep(1)
        await leave(factory, objects)
        assert not {0, 1} & cluster.ledgers.listed()
        kill(factory)
    for _ in range(2):
        async with cluster.broker(objects=objects) as factory:
            log = await factory.open(NAME)
            assert (log.last_confirmed, log.entry_count) == (Position(1, 9), 20)
            assert log.cursors["sub"].mark_delete == Position(0, 3)
            assert log.cursors["sub"].backlog() == 16
            assert await read_all(log) == numbered(0, 20)
    async with cluster.broker() as factory:  # without the storage: an error, and nothing is lost
        log = await factory.open(NAME)
        assert log.entry_count == 20
        with pytest.raises(ManagedLedgerReadError, match="in tiered storage only"):
            await read_all(log)


async def test_appends_go_on_behind_a_last_ledger_that_is_only_in_an_object(
    cluster: Cluster, objects: FakeObjects
) -> None:
    objects.deletion_lag_ms = 0
    async with cluster.broker(objects=objects) as factory:
        log = await filled(factory, 10)
        await publish(log, b"10")
        await offload(log, cluster.ledgers, objects, 0)
        await trio.sleep(1)
        await leave(factory, objects)
        kill(factory)
    del cluster.ledgers.stored[1]  # bookies have lost the one behind it, and the list has only one more
    async with cluster.broker(objects=objects) as factory:
        log = await factory.open(NAME)
        assert log.last_confirmed == Position(0, 9)
        assert await publish(log, b"next") == [(2, 0)]
        assert await read_all(log) == [*numbered(0, 10), b"next"]


async def test_a_last_ledger_with_an_object_stays_in_the_list_if_bookies_have_lost_it(
    cluster: Cluster, objects: FakeObjects
) -> None:
    async with cluster.broker(objects=objects) as factory:
        log = await filled(factory, 10)
        await log.terminate()
        await offload(log, cluster.ledgers, objects, 0)
        kill(factory)
    del cluster.ledgers.stored[0]
    async with cluster.broker(objects=objects) as factory:
        assert await read_all(await factory.open(NAME)) == numbered(0, 10)


async def test_wherever_a_broker_is_killed_in_a_deletion_nothing_is_lost_and_nothing_stays(
    objects: FakeObjects,
) -> None:
    objects.deletion_lag_ms = 0

    async def before(factory: ManagedLedgerFactory, tale: Tale) -> None:
        objects.stored.clear()
        log = await factory.open(NAME)
        await tale.publish(log, numbered(0, 5))
        for first in range(5, 25, 5):
            await tale.publish(log, numbered(first, 5))
        await offload(log, tale.cluster.ledgers, objects, 0, 1)
        await trio.sleep(1)
        kill(factory)

    async def story(factory: ManagedLedgerFactory, tale: Tale) -> None:
        objects.point = tale.cluster.ledgers.point
        await factory.open(NAME)
        await leave(factory, objects)

    async def sequel(cluster: Cluster, tale: Tale) -> None:
        objects.point = None
        async with cluster.broker(objects=objects) as factory:
            log = await factory.open(NAME)
            assert await read_all(log) == tale.confirmed
            await leave(factory, objects)
            await trio.sleep(1)
            assert not cluster.ledgers.listed() & {0, 1}
            assert await read_all(log) == tale.confirmed
            assert [state_of(info).bookkeeper_deleted for info in log.ledgers[:2]] == [True, True]
            assert await publish(log, b"after")

    assert await killed_everywhere(story, sequel, before, objects=objects) >= 10


async def test_a_broker_that_has_lost_the_log_deletes_nothing(cluster: Cluster, objects: FakeObjects) -> None:
    objects.deletion_lag_ms = 0
    async with cluster.broker(objects=objects) as old, cluster.broker(objects=objects) as new:
        log = await filled(old)
        await offload(log, cluster.ledgers, objects, 0)
        await trio.sleep(1)
        await publish(await new.open(NAME), b"taken over")
        await leave(old, objects)
        assert 0 in cluster.ledgers.listed()
        assert not any(state_of(info).bookkeeper_deleted for info in (await cluster.stored_list()).ledgers)
        await leave(new, objects)
        assert 0 not in cluster.ledgers.listed()


async def test_a_log_that_is_closed_during_the_deletion_is_whole_for_its_next_owner(
    cluster: Cluster, objects: FakeObjects
) -> None:
    objects.deletion_lag_ms = 0
    async with cluster.broker(objects=objects) as factory:
        log = await filled(factory)
        await offload(log, cluster.ledgers, objects, 0)
        await trio.sleep(1)
        cluster.ledgers.delay_s = 0.5
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave, factory, objects)
            await until(lambda: cluster.ledgers.waiting)
            nursery.start_soon(log.close)
    cluster.ledgers.delay_s = 0
    async with cluster.broker(objects=objects) as factory:
        log = await factory.open(NAME)
        await trio.sleep(1)
        assert 0 not in cluster.ledgers.listed()
        assert await read_all(log) == numbered(0, 35)


async def test_a_released_object_deletes_nothing(cluster: Cluster, objects: FakeObjects) -> None:
    """Between the verification and the change of the list."""
    objects.deletion_lag_ms = 0
    async with cluster.broker(objects=objects) as factory:
        log = await filled(factory)
        await offload(log, cluster.ledgers, objects, 0)
        await trio.sleep(1)

        async def release() -> None:
            await log.update_list(lambda value: released(value, 0, uid_of(0)))

        objects.point = release
        await leave(factory, objects)
        assert 0 in cluster.ledgers.listed()
        assert not any(info.offload for info in log.ledgers)


async def test_what_left_is_trimmed_and_deleted_like_any_other_ledger(cluster: Cluster, objects: FakeObjects) -> None:
    objects.deletion_lag_ms = 0
    async with cluster.broker(objects=objects, retention_minutes=0, retention_mb=0) as factory:
        log = await factory.open(NAME)
        cursor = await log.open_cursor("sub", initial="earliest")
        await filled(factory)
        await offload(log, cluster.ledgers, objects, 0, 1)
        await trio.sleep(1)
        await leave(factory, objects)
        cursor.ack_cumulative(Position(0, 9))
        await cursor.wait_persisted()
        await until(lambda: log.first_position() == Position(1, 0))
        assert await read_all(log) == numbered(10, 25)
        await factory.delete(NAME)
        assert cluster.ledgers.listed() == set()


CLOSED = LedgerInfo(ledger_id=3, entries=9, size=900, closed_ms=5)
LIST = LedgerList(ledgers=(CLOSED, LedgerInfo(ledger_id=4)), deleting=(1,))


def offloaded(value: LedgerList = LIST) -> LedgerList:
    return completed(prepared(value, 3, uid_of(3), instead="", driver=DRIVER, now_ms=10), 3, uid_of(3), now_ms=1000)


def test_a_ledger_is_due_when_its_object_has_been_complete_for_longer_than_the_lag() -> None:
    def due(value: LedgerList, lag_ms: int = 50, now_ms: int = 1051, driver: str = DRIVER) -> list[int]:
        return [info.ledger_id for info in due_to_leave(value, driver=driver, lag_ms=lag_ms, now_ms=now_ms)]

    whole = offloaded()
    assert due(whole) == [3]
    assert due(whole, now_ms=1050) == due(whole, now_ms=0) == due(whole, lag_ms=-1) == due(whole, driver="s3") == []
    assert due(prepared(LIST, 3, uid_of(3), instead="", driver=DRIVER, now_ms=10)) == []
    assert due(left(whole, 3, str(uid_of(3)))) == []
    assert due(LIST) == []


def test_a_ledger_that_leaves_is_named_for_deletion_in_the_same_write() -> None:
    gone = left(offloaded(), 3, str(uid_of(3)))
    assert gone.deleting == (1, 3)
    assert state_of(gone.ledgers[0]).bookkeeper_deleted
    assert [info.ledger_id for info in gone.deleted([1, 3]).ledgers] == [3, 4]
    refuses(OffloadRefusedError, lambda: left(LIST, 3, ""), "has no complete object")
    refuses(OffloadRefusedError, lambda: left(offloaded(), 3, str(uid_of(4))), "has no complete object")
    refuses(OffloadRefusedError, lambda: left(offloaded(), 9, str(uid_of(3))), "not of this topic")
    refuses(OffloadRefusedError, lambda: released(gone, 3, uid_of(3)), "the only copy")


def test_the_last_ledger_is_closed_if_it_was_offloaded_before_the_ones_behind_it_went() -> None:
    """A pipeline that does not see it would take its file for one of a trimmed ledger."""
    value = offloaded().without([4])
    assert [info.ledger_id for info in closed_ledgers(value)] == [3]
    assert closed_ledgers(LIST.without([4])) == ()
    assert [info.ledger_id for info in due_to_leave(value, driver=DRIVER, lag_ms=0, now_ms=2000)] == [3]


@pytest.mark.parametrize("change", [lambda value: value, lambda value: left(value, 3, str(uid_of(3)))])
def test_a_check_of_lists_does_not_miss_a_ledger_that_has_an_object(change: Callable[[LedgerList], LedgerList]) -> None:
    value = change(offloaded())
    assert is_in_object(value.ledgers[0])
    assert not is_in_object(CLOSED)
    assert list(check_lists({log_path(NAME): encode(value)}, {4})) == []
    (problem,) = check_lists({log_path(NAME): encode(LIST)}, {4})
    assert "names ledger 3" in problem

"""Objects of offloaded ledgers go when their ledgers leave the log, after them and never before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from managed_ledger import leaving, tiers
from managed_ledger.errors import ManagedLedgerUnavailableError, OffloadRefusedError
from managed_ledger.factory import ManagedLedgerFactory
from managed_ledger.ledger_list import LedgerInfo, LedgerList, decode, encode
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.offloading import OFFLOADED_MAX, completed, prepared, trimmed
from managed_ledger.stored_list import log_path
from quire.ledger.position import Position
from tests.support.refusals import refuses
from tests.support.waiting import until
from tests.unit.managed_ledger.cluster import NAME, Cluster, kill, numbered, publish, read_all
from tests.unit.managed_ledger.fake_objects import DRIVER, FakeObjects, log_ms, offload, uid_of
from tests.unit.managed_ledger.killing import Tale, killed_everywhere


@pytest.fixture
def objects() -> FakeObjects:
    return FakeObjects()


def kept(objects: FakeObjects) -> set[str]:
    return set(objects.stored)


def uids(*ledger_ids: int) -> set[str]:
    return {str(uid_of(ledger_id)) for ledger_id in ledger_ids}


async def filled(factory: ManagedLedgerFactory, cluster: Cluster, objects: FakeObjects, *ledgers: int) -> ManagedLedger:
    """Return a log of ledgers of ten entries, with a cursor at the beginning, of which these are offloaded."""
    log = await factory.open(NAME)
    await log.open_cursor("sub", initial="earliest")
    for first in range(0, 35, 5):
        await publish(log, *numbered(first, 5))
    await offload(log, cluster.ledgers, objects, *ledgers)
    return log


async def consume(log: ManagedLedger, position: Position) -> None:
    cursor = log.cursors["sub"]
    cursor.ack_cumulative(position)
    await cursor.wait_persisted()


async def go_round(factory: ManagedLedgerFactory, objects: FakeObjects) -> None:
    await leaving.Leaving(factory._services, objects, factory.managed_ledgers.values).go_round()


async def test_the_object_of_a_trimmed_ledger_is_deleted_and_no_other_one(
    cluster: Cluster, objects: FakeObjects
) -> None:
    async with cluster.broker(objects=objects, retention_minutes=0, retention_mb=0) as factory:
        log = await filled(factory, cluster, objects, 0, 1, 2)
        await consume(log, Position(0, 9))
        await until(lambda: kept(objects) == uids(1, 2), "the object of the trimmed ledger is gone")
        await until(lambda: log.stored_list.trimmed == ())
        assert await read_all(log) == numbered(10, 25)
        await consume(log, Position(2, 9))
        await until(lambda: kept(objects) == set())
        assert await read_all(log) == numbered(30, 5)


async def test_truncate_deletes_objects_and_retention_keeps_them(cluster: Cluster, objects: FakeObjects) -> None:
    async with cluster.broker(objects=objects) as factory:
        log = await filled(factory, cluster, objects, 0, 1, 2)
        await consume(log, Position(2, 9))
        assert await log.trim() == 0
        assert kept(objects) == uids(0, 1, 2)
        assert await log.truncate() == 3
        assert kept(objects) == set()


async def test_an_object_that_was_only_prepared_goes_too(cluster: Cluster, objects: FakeObjects) -> None:
    """The job that writes it may have been killed after it gave the object its name."""
    async with cluster.broker(objects=objects) as factory:
        log = await filled(factory, cluster, objects)
        uid = uid_of(0)
        await log.update_list(lambda value: prepared(value, 0, uid, instead="", driver=DRIVER, now_ms=log_ms(log)))
        objects.stored[str(uid)] = []
        await consume(log, Position(0, 9))
        assert await log.truncate() == 1
        assert kept(objects) == set()


async def test_the_list_names_an_object_that_could_not_be_deleted_and_a_later_round_deletes_it(
    cluster: Cluster, objects: FakeObjects
) -> None:
    async with cluster.broker(objects=objects) as factory:
        log = await filled(factory, cluster, objects, 0, 1)
        await consume(log, Position(0, 9))
        objects.is_away = True
        assert await log.truncate() == 1
        assert kept(objects) == uids(0, 1)
        assert [info.ledger_id for info in (await cluster.stored_list()).trimmed] == [0]
        deletion = leaving.Leaving(factory._services, objects, factory.managed_ledgers.values)
        await deletion.go_round()
        objects.is_away = False
        await deletion.go_round()
        assert kept(objects) == uids(0, 1), "what has failed is not tried again at once"
        await trio.sleep(leaving.RETRY_S)
        await deletion.go_round()
        assert kept(objects) == uids(1)
        objects.deletions.clear()
        await deletion.go_round()
        assert objects.deletions == []
        assert await read_all(log) == numbered(10, 25)


async def test_the_interval_of_retention_is_that_of_what_is_left_without_a_lag_too(
    cluster: Cluster, objects: FakeObjects
) -> None:
    async with cluster.broker(objects=objects, retention_check_s=5) as factory:
        log = await filled(factory, cluster, objects, 0)
        await consume(log, Position(0, 9))
        objects.is_away = True
        await log.truncate()
        objects.is_away = False
        await until(lambda: kept(objects) == set())


async def test_the_next_owner_deletes_what_was_left(cluster: Cluster, objects: FakeObjects) -> None:
    async with cluster.broker(objects=objects) as factory:
        log = await filled(factory, cluster, objects, 0)
        await consume(log, Position(0, 9))
        objects.is_away = True
        await log.truncate()
        kill(factory)
    objects.is_away = False
    async with cluster.broker(objects=objects) as factory:
        log = await factory.open(NAME)
        await until(lambda: kept(objects) == set())
        await publish(log, b"more")
        log.roll()
        await publish(log, b"more")
        await until(lambda: log.stored_list.trimmed == ())
    assert (await cluster.stored_list()).trimmed == ()


async def test_storages_that_do_not_answer_are_not_asked_for_each_log(cluster: Cluster, objects: FakeObjects) -> None:
    names = [f"{NAME}{number}" for number in range(leaving.FAILURES_MAX + 3)]
    async with cluster.broker(objects=objects) as factory:
        for name in names:
            log = await factory.open(name)
            await publish(log, *numbered(0, 10))
            await publish(log, b"10")
            await offload(log, cluster.ledgers, objects, log.ledgers[0].ledger_id)
            objects.is_away = True
            await log.truncate()
            objects.is_away = False
        objects.is_away = True
        objects.deletions.clear()
        deletion = leaving.Leaving(factory._services, objects, factory.managed_ledgers.values)
        await deletion.go_round()
        assert len(objects.deletions) == leaving.FAILURES_MAX
        await deletion.go_round()
        assert len(objects.deletions) == len(names), "those that have failed wait, and the others have their turn"


async def test_a_log_is_deleted_with_its_objects_or_not_at_all(cluster: Cluster, objects: FakeObjects) -> None:
    async with cluster.broker(objects=objects) as factory:
        await filled(factory, cluster, objects, 0, 1, 2)
        objects.is_away = True
        with pytest.raises(ManagedLedgerUnavailableError, match="the storage is away"):
            await factory.delete(NAME)
        assert (await cluster.stored_list()).ledgers == ()
        assert kept(objects) == uids(0, 1, 2)
        objects.is_away = False
        await factory.delete(NAME)
        assert kept(objects) == set()
        assert await cluster.metadata.get(log_path(NAME)) is None


async def test_a_log_made_again_deletes_the_objects_of_the_one_that_was_half_deleted(
    cluster: Cluster, objects: FakeObjects
) -> None:
    async with cluster.broker(objects=objects) as factory:
        await filled(factory, cluster, objects, 0, 1)
        objects.is_away = True
        with pytest.raises(ManagedLedgerUnavailableError):
            await factory.delete(NAME)
        objects.is_away = False
        log = await factory.open(NAME)
        assert await read_all(log) == []
        await until(lambda: kept(objects) == set())


async def test_objects_go_in_batches(cluster: Cluster, objects: FakeObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "DELETED_AT_ONCE", 2)
    async with cluster.broker(objects=objects) as factory:
        log = await filled(factory, cluster, objects, 0, 1, 2)
        await consume(log, Position(2, 9))
        await log.truncate()
        assert [len(batch) for batch in objects.deletions] == [2, 1]
        assert kept(objects) == set()


@pytest.mark.parametrize("storage", ["none", "keeps", "other"])
async def test_files_stay_unless_this_broker_deletes_files_of_their_kind(
    cluster: Cluster, objects: FakeObjects, storage: str
) -> None:
    async with cluster.broker(objects=objects) as factory:
        await filled(factory, cluster, objects, 0, 1)
    given: FakeObjects | None = objects
    if storage == "none":
        given = None
    elif storage == "keeps":
        objects.are_deleted = False
    else:
        objects.driver = "other"
    async with cluster.broker(objects=given) as factory:
        log = await factory.open(NAME)
        await consume(log, Position(0, 9))
        await log.truncate()
        assert log.stored_list.trimmed == (), "a list does not grow by names that no broker removes"
        await factory.delete(NAME)
    assert kept(objects) == uids(0, 1)
    assert objects.deletions == []


# Kills


async def checked(cluster: Cluster, objects: FakeObjects) -> None:
    """Check that each ledger of the stored list has a copy."""
    for info in (await cluster.stored_list()).ledgers:
        assert info.ledger_id in cluster.ledgers.listed() or str(uid_of(info.ledger_id)) in objects.stored


def killed(
    objects: FakeObjects, work: Callable[[ManagedLedgerFactory], Awaitable[object]], *, left: bool
) -> tuple[
    Callable[[ManagedLedgerFactory, Tale], Awaitable[None]], Callable[[ManagedLedgerFactory, Tale], Awaitable[None]]
]:
    """Return what comes before a kill, with two ledgers offloaded, and the story. `left`: bookies do not have them."""

    async def before(factory: ManagedLedgerFactory, tale: Tale) -> None:
        objects.stored.clear()
        log = await filled(factory, tale.cluster, objects, 0, 1)
        await consume(log, Position(1, 9))
        if left:
            objects.deletion_lag_ms = 0
            await trio.sleep(1)
            await go_round(factory, objects)
            assert not {0, 1} & tale.cluster.ledgers.listed()
        kill(factory)

    async def story(factory: ManagedLedgerFactory, tale: Tale) -> None:
        point = tale.cluster.ledgers.point
        assert point is not None

        async def at() -> None:
            await checked(tale.cluster, objects)
            await point()

        await factory.open(NAME)
        objects.point = at
        await work(factory)

    return before, story


@pytest.mark.parametrize("left", [False, True])
async def test_wherever_a_broker_is_killed_in_a_trim_no_ledger_is_without_a_copy_and_no_object_stays(
    objects: FakeObjects, left: bool
) -> None:
    async def trim(factory: ManagedLedgerFactory) -> None:
        await (await factory.open(NAME)).truncate()

    before, story = killed(objects, trim, left=left)

    async def sequel(cluster: Cluster, tale: Tale) -> None:
        objects.point = None
        await checked(cluster, objects)
        async with cluster.broker(objects=objects) as factory:
            log = await factory.open(NAME)
            found = await read_all(log)
            assert found in (numbered(0, 35), numbered(20, 15)), "both ledgers, or none"
            await trio.sleep(1)
            await log.truncate()
            assert kept(objects) == set()
            assert not {0, 1} & cluster.ledgers.listed()
            assert await read_all(log) == numbered(20, 15)

    assert await killed_everywhere(story, sequel, before, objects=objects) >= 8


async def test_wherever_a_broker_is_killed_in_the_deletion_of_a_log_its_repetition_leaves_nothing(
    objects: FakeObjects,
) -> None:
    async def delete(factory: ManagedLedgerFactory) -> None:
        await factory.delete(NAME)

    before, story = killed(objects, delete, left=False)

    async def sequel(cluster: Cluster, tale: Tale) -> None:
        objects.point = None
        if await cluster.metadata.get(log_path(NAME)) is not None:
            await checked(cluster, objects)
            async with cluster.broker(objects=objects) as factory:
                await factory.delete(NAME)
        assert kept(objects) == set()
        assert cluster.ledgers.listed() == set()

    assert await killed_everywhere(story, sequel, before, objects=objects) >= 8


async def test_a_broker_that_has_lost_the_log_trims_nothing(cluster: Cluster, objects: FakeObjects) -> None:
    async with cluster.broker(objects=objects) as old, cluster.broker(objects=objects) as new:
        log = await filled(old, cluster, objects, 0)
        await consume(log, Position(0, 9))
        await new.open(NAME)
        with pytest.raises(Exception, match="taken over"):
            await log.truncate()
        assert kept(objects) == uids(0)


# The list

CLOSED = LedgerInfo(ledger_id=3, entries=9, size=900, closed_ms=5)
LIST = LedgerList(ledgers=(CLOSED, LedgerInfo(ledger_id=4)), deleting=(1,))


def offloaded() -> LedgerList:
    return completed(prepared(LIST, 3, uid_of(3), instead="", driver=DRIVER, now_ms=10), 3, uid_of(3), now_ms=20)


def test_a_ledger_leaves_the_list_and_its_object_is_named_in_the_same_value() -> None:
    value = trimmed(offloaded(), [3], driver=DRIVER)
    assert [info.ledger_id for info in value.ledgers] == [4]
    assert value.deleting == (1, 3)
    assert value.trimmed == (offloaded().ledgers[0],)
    assert decode(encode(value)) == value
    assert decode(encode(value.opened(5))).trimmed == value.trimmed
    assert value.taken_over(7).also_deleting([9]).deleted([1, 3]).trimmed == value.trimmed
    assert value.objects_deleted([3]).trimmed == ()
    assert trimmed(offloaded(), [3], driver="").trimmed == trimmed(offloaded(), [3], driver="s3").trimmed == ()
    assert trimmed(LIST, [3], driver=DRIVER).trimmed == ()


def test_objects_that_are_to_be_deleted_count_as_offloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert OFFLOADED_MAX == 4000
    monkeypatch.setattr("managed_ledger.offloading.OFFLOADED_MAX", 1)
    value = trimmed(offloaded(), [3], driver=DRIVER).closed(4, entries=1, size=1, now_ms=1).opened(5)
    refuses(
        OffloadRefusedError,
        lambda: prepared(value, 4, uid_of(4), instead="", driver=DRIVER, now_ms=10),
        "ledgers of this topic are offloaded",
    )
    prepared(value.objects_deleted([3]), 4, uid_of(4), instead="", driver=DRIVER, now_ms=10)

"""Behaviour of a log whose owner may not, or cannot, write metadata. test_managed_ledger covers the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import trio
import trio.testing

from cursors.errors import CursorFencedError
from managed_ledger.errors import ManagedLedgerFencedError, ManagedLedgerUnavailableError
from managed_ledger.factory import ManagedLedgerFactory, open_factory
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.stored_list import LIST_BYTES_MAX
from managed_ledger.writing.state import State
from quire.ledger.errors import LedgerFencedError, LedgerWriteError
from quire.ledger.position import Position
from tests.support.refusals import raises
from tests.support.waiting import until
from tests.unit.ledger.fake_bookie import FakeCluster
from tests.unit.managed_ledger.cluster import NAME, Cluster, append, numbered, publish, read_all
from tests.unit.managed_ledger.fake_ledgers import Sink, fake_world
from tests.unit.managed_ledger.hosts import THREE_COPIES


def everything(cluster: Cluster) -> dict[str, tuple[bytes, int]]:
    return {path: (node.value, node.version) for path, node in cluster.tree._tree.nodes.items()}


def nothing(cluster: Cluster, log: ManagedLedger) -> None:
    """Leave the log open, with an append in progress."""


def full(cluster: Cluster, log: ManagedLedger) -> None:
    """Bring the log to a rollover that waits for the bookies."""
    log.append(numbered(50, 20), Sink())


def failed(cluster: Cluster, log: ManagedLedger) -> None:
    cluster.ledgers.writers[0].fail(LedgerWriteError("no quorum"))


def fenced(cluster: Cluster, log: ManagedLedger) -> None:
    """Bring the log to the point before it checks its ownership."""
    cluster.ledgers.writers[0].fail(LedgerFencedError("fenced"))


def ahead(cluster: Cluster, log: ManagedLedger) -> None:
    """Bring the log to the creation of its next ledger."""
    writer = cluster.ledgers.writers[0]
    log.append(numbered(50, 7), Sink())
    writer.confirm()


def closing(cluster: Cluster, log: ManagedLedger) -> None:
    log._services.nursery.start_soon(log.close)


@pytest.mark.parametrize("waited_s", [0.0, 0.4, 0.9, 1.4, 2.4])
@pytest.mark.parametrize("prepare", [nothing, full, failed, fenced, ahead, closing])
async def test_an_abandoned_log_fails_what_waits_and_writes_nothing_more(
    factory: ManagedLedgerFactory, prepare: Callable[[Cluster, ManagedLedger], None], waited_s: float, cluster: Cluster
) -> None:
    """This holds in every state. Only a close or a recovery that was in transit takes effect."""
    log = await factory.open(NAME)
    cursor = await log.open_cursor("sub", initial="earliest")
    told: list[str] = []
    log.on_fenced = lambda: told.append("gone")
    await publish(log, *numbered(0, 2))
    cluster.ledgers.hold = True
    cluster.ledgers.writers[0].held = True
    cluster.ledgers.delay_s = 0.5
    sink = append(log, numbered(2, 2))
    cursor.ack_individual([Position(0, 0)])
    prepare(cluster, log)
    await trio.sleep(waited_s)
    confirmed = sink.count
    log.abandon()
    before, made = everything(cluster), cluster.ledgers.log.copy()
    on_the_way = {f"close {n}" for n, writer in cluster.ledgers.writers.items() if writer.closes}
    ends = {n: stored.last_entry_id for n, stored in cluster.ledgers.stored.items()}
    assert (log.state, told) == (State.FENCED, ["gone"])
    assert NAME not in factory.managed_ledgers
    if not confirmed:
        assert [type(error) for error in sink.errors] == [ManagedLedgerFencedError]
    late = Sink()
    log.append([b"late"], late)
    assert isinstance(late.errors[0], ManagedLedgerFencedError)
    cursor.ack_individual([Position(0, 1)])
    with trio.fail_after(10), pytest.raises(CursorFencedError):
        await cursor.wait_persisted()
    log.abandon()
    await log.close()
    await trio.sleep(20)
    assert (log.state, told) == (State.FENCED, ["gone"])
    assert sink.count == confirmed
    assert everything(cluster) == before
    followed = {line for line in cluster.ledgers.log[len(made) :] if line.startswith(("close", "delete"))}
    assert followed <= on_the_way
    for n, stored in cluster.ledgers.stored.items():
        assert stored.last_entry_id == ends[n] or f"close {n}" in on_the_way or stored.fenced
    cluster.ledgers.delay_s = 0.0
    cluster.ledgers.hold = False
    async with cluster.broker() as other:
        taken = await other.open(NAME)
        assert (await read_all(taken))[:2] == numbered(0, 2)
        await trio.sleep(1)
        named = await cluster.named_ledgers()
        store = taken.cursors["sub"].store
        assert store is not None
        assert cluster.ledgers.listed() <= {*named, *store.ledger_ids()}


@pytest.mark.broker(retention_minutes=0, retention_mb=0, retention_check_s=1)
async def test_while_the_metadata_is_known_to_be_away_the_open_ledger_serves_on_however_full_and_nothing_is_tried(
    cluster: Cluster, log: ManagedLedger
) -> None:
    await publish(log, *numbered(0, 12))
    await trio.sleep(1)
    first = log.ledgers[0].ledger_id
    cursor = await log.open_cursor("sub", initial="earliest")
    session = cluster.stores[0]
    session.disconnect()
    made = len(cluster.ledgers.log)
    assert await publish(log, *numbered(100, 7)), "with which it is nearly full"
    for number in range(10):
        assert len(await publish(log, *numbered(10 * number, 10))) == 10
        await trio.sleep(2)
    assert [one.ledger_id for one in log.ledgers] == [first]
    assert cluster.ledgers.log[made:] == []
    cursor.skip_all()
    await raises(ManagedLedgerUnavailableError, log.trim())
    assert log.state is State.OPEN
    session.reconnect()
    await until(lambda: log.ledgers[0].ledger_id > first)
    assert log.last_confirmed == Position(first, 108)
    assert log.state is State.OPEN


async def test_a_roll_that_is_asked_for_while_the_next_ledger_is_being_made_makes_nothing_invisible(
    cluster: Cluster,
) -> None:
    """B6, with shortened timers: overlapping rollovers on request, by age and by entries."""
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        sink = Sink()
        cluster.ledgers.delay_s = 0.03
        for number in range(60):
            log.append(numbered(7 * number, 7), sink)
            log.roll()
            log.check_age(trio.current_time() + 1e6)
            log.roll()
            await trio.sleep(0.01)
        await until(lambda: sink.count == 420)
        assert log.state in (State.OPEN, State.SWITCHING)
        assert await read_all(log) == numbered(0, 420)
        ids = sink.ids()
        assert ids == sorted(set(ids))
    cluster.ledgers.delay_s = 0.0
    async with cluster.broker() as factory:
        assert await read_all(await factory.open(NAME)) == numbered(0, 420)


async def test_a_list_that_has_nearly_the_size_that_zookeeper_refuses_is_not_made_longer_and_serves_on(
    cluster: Cluster, log: ManagedLedger
) -> None:
    """M9. Trimming makes room again."""
    await publish(log, *numbered(0, 12))
    listed = await cluster.stored_list()
    properties = (("filler", "x" * LIST_BYTES_MAX),)
    log._stored.change_of(lambda value: replace(value, properties=properties))
    await publish(log, *numbered(12, 10))
    await trio.sleep(5)
    long = log.ledgers[-1].ledger_id
    for number in range(5):
        assert await publish(log, *numbered(22 + 9 * number, 9))
        await trio.sleep(2)
    assert log.ledgers[-1].ledger_id == long
    assert await read_all(log) == numbered(0, 67)
    log._stored.change_of(lambda value: replace(value, properties=listed.properties))
    assert await log.open_cursor("sub")
    await log.delete_cursor("sub")
    await trio.sleep(700)
    assert log.ledgers[-1].ledger_id > long


async def test_an_abandoned_log_leaves_bookies_and_ensembles_alone() -> None:
    """With the real ledger client: unconfirmed entries are not sent again, and cause no replacement of a bookie."""
    cluster = FakeCluster(4)
    async with (
        cluster.client() as client,
        open_factory(fake_world(), cluster.store, client, THREE_COPIES) as factory,
    ):
        log = await factory.open(NAME)
        await publish(log, *numbered(0, 2))
        ledger_id = log.ledgers[-1].ledger_id
        before = await cluster.metadata(ledger_id)
        ensemble = cluster.of(before.fragments[-1].bookies)
        for bookie in cluster.bookies.values():
            bookie.hold = True
        sink = append(log, numbered(2, 3))
        log.abandon()
        await trio.testing.wait_all_tasks_blocked()
        adds = sum(len(bookie.entries.get(ledger_id, {})) for bookie in cluster.bookies.values())
        ensemble[0].stop()  # there is a fourth bookie to take its place
        await trio.sleep(60)
        assert await cluster.metadata(ledger_id) == before
        assert sum(len(bookie.entries.get(ledger_id, {})) for bookie in cluster.bookies.values()) == adds
        assert [type(error) for error in sink.errors] == [ManagedLedgerFencedError]
        assert sink.count == 0

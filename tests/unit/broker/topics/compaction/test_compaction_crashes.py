"""A broker is killed at every point at which a compaction, the deletion of one, or the cleaning after one is half done.

Another broker then opens the log. It finds the old or the new view, no message is missing, and no ledger is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import trio

from broker.context import Context
from broker.topics.compaction.compaction import RUNNING, SUCCESS, Compaction
from broker.topics.compaction.compactor import TopicEntries
from broker.topics.compaction.leftovers import COMPACTION_CURSOR, ROOT, delete_log
from broker.topics.entry_screen import EntryScreen
from broker.topics.policies import Held
from managed_ledger.errors import NoSuchManagedLedgerError
from managed_ledger.factory import ManagedLedgerFactory
from managed_ledger.managed_ledger import ManagedLedger
from quire.ledger.position import Position
from quire.metadata.errors import NoNodeError
from quire.service.log import Logger, get_logger
from quire.wire.pulsar.metadata import metadata_span, read_metadata
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import entry
from tests.support.waiting import until
from tests.unit.broker.peers import OPTIONS
from tests.unit.managed_ledger.cluster import NAME, Cluster, kill, publish
from tests.unit.managed_ledger.fake_ledgers import fake_world
from tests.unit.managed_ledger.killing import Tale, killed_everywhere

TRIMMED: dict[str, Any] = {"retention_minutes": 0, "retention_mb": 0}
OLD = [(f"k{number % 9}", b"%d" % number) for number in range(23)]
NEW = [(f"k{number % 5}", b"" if number % 5 == 3 else b"new %d" % number) for number in range(17)]


def folded(*pairs: tuple[str, bytes]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for key, value in pairs:
        found.pop(key, None)
        if value:
            found[key] = value
    return found


@dataclass
class Topic:
    """As much of a topic as its compaction uses."""

    context: Context
    name: TopicName
    ledger: ManagedLedger
    nursery: trio.Nursery
    closing: bool = False
    reloads: int = 0
    read_bound: Position | None = None
    policies: Held | None = None

    @property
    def screen(self) -> EntryScreen:
        return EntryScreen(self.name, self.ledger.last_confirmed, Counter())

    @property
    def log(self) -> Logger:
        return get_logger(__name__).bind(topic=self.name.full)

    def check_open(self) -> None:
        assert self.ledger.is_usable

    def reload(self) -> None:
        self.reloads += 1


@asynccontextmanager
async def opened(factory: ManagedLedgerFactory) -> AsyncIterator[Compaction]:
    log = await factory.open(NAME)
    async with trio.open_nursery() as nursery:
        topic = Topic(
            Context(fake_world(), OPTIONS, nursery), TopicName.parse("persistent://public/default/orders"), log, nursery
        )
        compaction = Compaction(topic)
        if COMPACTION_CURSOR in log.cursors:
            compaction.recover()
        yield compaction


async def compact(compaction: Compaction) -> None:
    compaction.start()
    await until(lambda: compaction.status != RUNNING)
    assert (compaction.status, compaction.error) == (SUCCESS, "")


async def contents(factory: ManagedLedgerFactory, compaction: Compaction) -> dict[str, bytes]:
    """Return what a compacted reader makes of the topic."""
    log = factory.managed_ledgers[NAME]
    source = TopicEntries(log, compaction.view, log.last_confirmed)
    pairs = []
    while entries := await source.next():
        for _, data in entries:
            pairs.append((str(read_metadata(data).partition_key), bytes(data[metadata_span(data)[1] :])))
    return folded(*pairs)


async def publish_pairs(factory: ManagedLedgerFactory, pairs: list[tuple[str, bytes]]) -> None:
    log = await factory.open(NAME)
    for key, value in pairs:
        await publish(log, entry(value, partition_key=key))


async def once_compacted(factory: ManagedLedgerFactory, tale: Tale) -> None:
    """Compact the topic once, publish more to it, and end as by SIGKILL."""
    async with opened(factory) as compaction:
        await compact(compaction)
        await publish_pairs(factory, OLD)
        await compact(compaction)
        await publish_pairs(factory, NEW)
    kill(factory)


def of_log(log: ManagedLedger) -> set[int]:
    return {info.ledger_id for info in log.ledgers} | {log.appends.next_ledger_id}


async def no_ledger_without_a_name(cluster: Cluster, compaction: Compaction, factory: ManagedLedgerFactory) -> None:
    """Wait until only ledgers of the log, of its cursor and of its view exist."""
    log = factory.managed_ledgers[NAME]

    async def clean() -> bool:
        known = of_log(log)
        store = log.cursors[COMPACTION_CURSOR].store
        known |= set() if store is None else set(store.ledger_ids())
        known |= set() if compaction.view is None else {compaction.view.ledger_id}
        return set(cluster.ledgers.stored) <= known and not await nodes(cluster)

    await until(clean)


async def nodes(cluster: Cluster) -> list[str]:
    try:
        return await cluster.metadata.children(f"{ROOT}/{NAME}")
    except NoNodeError:
        return []


async def sequel(cluster: Cluster, tale: Tale) -> None:
    async with cluster.broker(**TRIMMED) as factory, opened(factory) as compaction:
        if not factory.managed_ledgers[NAME].cursors:
            assert factory.managed_ledgers[NAME].entry_count == 0
            return
        assert await contents(factory, compaction) == folded(*OLD, *NEW)
        await no_ledger_without_a_name(cluster, compaction, factory)
        await compact(compaction)
        assert await contents(factory, compaction) == folded(*OLD, *NEW)
        await no_ledger_without_a_name(cluster, compaction, factory)


async def test_during_a_compaction_that_replaces_another() -> None:
    async def story(factory: ManagedLedgerFactory, tale: Tale) -> None:
        async with opened(factory) as compaction:
            await compact(compaction)

    assert await killed_everywhere(story, sequel, once_compacted, **TRIMMED) >= 15


async def test_during_the_first_compaction() -> None:
    async def before(factory: ManagedLedgerFactory, tale: Tale) -> None:
        log = await factory.open(NAME)
        await log.open_cursor("keeps", initial="earliest")
        await publish_pairs(factory, [*OLD, *NEW])
        kill(factory)

    async def story(factory: ManagedLedgerFactory, tale: Tale) -> None:
        async with opened(factory) as compaction:
            await compact(compaction)

    async def found(cluster: Cluster, tale: Tale) -> None:
        async with cluster.broker(**TRIMMED) as factory, opened(factory) as compaction:
            assert await contents(factory, compaction) == folded(*OLD, *NEW)
            await compact(compaction)
            assert await contents(factory, compaction) == folded(*OLD, *NEW)
            log = factory.managed_ledgers[NAME]
            await log.delete_cursor("keeps")
            await no_ledger_without_a_name(cluster, compaction, factory)

    assert await killed_everywhere(story, found, before, **TRIMMED) >= 10


async def test_while_a_compaction_is_dropped() -> None:
    async def story(factory: ManagedLedgerFactory, tale: Tale) -> None:
        async with opened(factory) as compaction:
            await compaction.drop()

    async def found(cluster: Cluster, tale: Tale) -> None:
        async with cluster.broker() as factory, opened(factory) as compaction:
            await compaction.drop()
            assert compaction.view is None
            log = factory.managed_ledgers[NAME]
            await until(lambda: set(cluster.ledgers.stored) <= of_log(log))
            assert await nodes(cluster) == []

    assert await killed_everywhere(story, found, once_compacted) >= 3


async def test_while_a_compacted_topic_is_deleted() -> None:
    name = TopicName.parse("persistent://public/default/orders")

    async def story(factory: ManagedLedgerFactory, tale: Tale) -> None:
        await delete_log(factory, factory._services.metadata, name, None)

    async def found(cluster: Cluster, tale: Tale) -> None:
        async with cluster.broker() as factory:
            try:
                await delete_log(factory, cluster.metadata, name, None)
            except NoSuchManagedLedgerError:
                pass
            assert cluster.ledgers.stored == {}
            assert await nodes(cluster) == []

    assert await killed_everywhere(story, found, once_compacted) >= 4

"""Stories of a broker that is killed at every point at which an operation is half done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from managed_ledger.factory import ManagedLedgerFactory
from managed_ledger.managed_ledger import ManagedLedger
from quire.ledger.position import Position
from tests.support.waiting import until
from tests.unit.managed_ledger.cluster import Cluster, in_cluster, read_all
from tests.unit.managed_ledger.fake_ledgers import Sink


class Tale:
    """Answers of a broker before it was killed."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.sinks: list[tuple[Sink, list[bytes]]] = []
        self.answered = Position(-1, -1)
        """Last acknowledged position for which the consumer received an answer."""
        self.done: list[str] = []

    async def publish(self, log: ManagedLedger, payloads: list[bytes]) -> None:
        sink = Sink()
        self.sinks.append((sink, payloads))
        log.append(payloads, sink)
        await until(lambda: sink.count == len(payloads))

    @property
    def confirmed(self) -> list[bytes]:
        return [payload for sink, payloads in self.sinks for payload in payloads[: sink.count]]

    async def check(self, log: ManagedLedger) -> list[bytes]:
        """Check AllAckedEntriesAreReadable, NoDivergenceBetweenClientAndMetaData, LedgersNeverLeak; return entries."""
        found = await read_all(log)
        assert found[: len(self.confirmed)] == self.confirmed
        await trio.sleep(1)
        cluster = self.cluster
        cursors = [cursor.store.ledger_ids() for cursor in log.cursors.values() if cursor.store is not None]
        kept = {*await cluster.named_ledgers()}.union(*cursors)
        assert cluster.ledgers.listed() <= kept, "a ledger leaked"
        listed = await cluster.stored_list()
        assert {info.ledger_id for info in listed.ledgers} <= cluster.ledgers.listed(), "the list names what is gone"
        for info in listed.ledgers[:-1]:
            assert cluster.ledgers.stored[info.ledger_id].last_entry_id == info.last_entry_id
        return found


Story = Callable[[ManagedLedgerFactory, Tale], Awaitable[None]]
Sequel = Callable[[Cluster, Tale], Awaitable[None]]


async def _tell(cluster: Cluster, tale: Tale, story: Story, last_point: int, config: dict[str, Any]) -> bool:
    """Run the story; return whether the broker reached its end."""
    points = 0
    with trio.CancelScope() as life:

        async def point() -> None:
            nonlocal points
            points += 1
            if points >= last_point:
                life.cancel()
                await trio.sleep_forever()

        cluster.point = cluster.ledgers.point = point
        async with cluster.broker(**config) as factory:
            await story(factory, tale)
            life.cancel()
    cluster.point = cluster.ledgers.point = None
    return points < last_point


async def killed_everywhere(story: Story, sequel: Sequel, before: Story | None = None, /, **config: Any) -> int:
    """Run the story with the broker killed at its first point, at its second, and so on, and each time the sequel.
    Return the number of points."""
    for last_point in range(1, 500):
        async with in_cluster() as cluster:
            tale = Tale(cluster)
            if before is not None:
                async with cluster.broker(**config) as factory:
                    await before(factory, tale)
            ended = await _tell(cluster, tale, story, last_point, config)
            await sequel(cluster, tale)
        if ended:
            return last_point - 1
    raise AssertionError("the story does not end")

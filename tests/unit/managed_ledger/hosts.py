"""Logs through the real ledger client, on bookies in memory, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from managed_ledger.factory import ManagedLedgerFactory, open_factory
from quire.metadata.ledgers import BlockLedgerIds
from tests.unit.ledger.fake_bookie import FakeCluster, RacingLedgers
from tests.unit.ledger.fake_network import FakeNetwork
from tests.unit.managed_ledger.cluster import CONFIG, Session
from tests.unit.managed_ledger.fake_ledgers import fake_world

ADD_TIMEOUT_S = 2.0
THREE_COPIES = replace(CONFIG, ensemble_size=3, write_quorum=3, ack_quorum=2)


class Host:
    """A broker with a network and a metadata session of its own."""

    def __init__(self, cluster: FakeCluster, store: Session, factory: ManagedLedgerFactory, network: FakeNetwork):
        self.cluster = cluster
        self.store = store
        self.factory = factory
        self.network = network

    def cut(self) -> None:
        """Cut the broker off from every bookie, in both directions, and from the metadata."""
        self.network.deaf = {*self.cluster.bookies}
        self.network.mute = {*self.cluster.bookies}
        self.store.disconnect()

    def heal(self) -> None:
        self.store.reconnect()
        self.network.heal()


@asynccontextmanager
async def host(cluster: FakeCluster, *, entries_max: int = 1000, retry_timeout_s: int = 600) -> AsyncIterator[Host]:
    store = Session(cluster.store._tree, session_timeout_s=3600.0)
    network = FakeNetwork(cluster, RacingLedgers(store, ids=BlockLedgerIds(store), rng=cluster.rng))
    config = replace(THREE_COPIES, entries_max=entries_max, retry_timeout_s=retry_timeout_s)
    async with (
        network.client(add_timeout_s=ADD_TIMEOUT_S) as client,
        open_factory(fake_world(), store, client, config) as factory,
    ):
        yield Host(cluster, store, factory, network)

"""Parts of a server that the cluster pages use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import trio

from broker.console.cluster_disks import BookieFacts
from quire.ledger.bookies.pool import BookieClient
from quire.ledger.placement.policy import Cluster, EnsemblePlacementPolicy
from quire.metadata.ledger_metadata import LedgerMetadata
from quire.world.doors import Network

if TYPE_CHECKING:
    from quire.world.tls_sides import ClientTls


class LedgerAccess(Protocol):
    """Part of the ledger client used here."""

    @property
    def cluster(self) -> Cluster | None: ...

    def list_ledgers(self, first: int = 0) -> AsyncIterator[int]: ...

    async def read_metadata(self, ledger_id: int) -> LedgerMetadata: ...

    @property
    def bookies(self) -> BookieClient: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterParts:
    """Parts of a server that the cluster pages use, beside those of the admin REST."""

    ledgers: LedgerAccess
    network: Network
    nursery: trio.Nursery
    """Owner of background work."""
    cluster: Callable[[], Cluster]
    """Return the bookies as the ledger client knows them."""
    placement_in: Callable[[Cluster], EnsemblePlacementPolicy]
    """Return the placement policy of the ledger client for another cluster; it logs nothing."""
    bookie_tls: ClientTls | None = None
    """TLS of this broker's connections to bookies, also for their web ports; None: it has none."""
    own_bookies: Mapping[str, Callable[[], Awaitable[BookieFacts]]] = field(default_factory=dict)
    """Facts about bookies in this process, by id."""

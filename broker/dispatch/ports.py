"""Interfaces that dispatch needs: the topic whose entries it delivers, and the connections it writes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import trio

from broker.context import Context
from broker.dispatch.counts import Counts
from broker.dispatch.rules import PoliciesSaid
from broker.series.published import Published
from broker.topics.compaction.compaction import Compaction
from broker.topics.delayed_delivery import DelayedDelivery
from broker.topics.entry_screen import EntryScreen
from broker.topics.rates.dispatching import DispatchLimit
from managed_ledger.managed_ledger import ManagedLedger
from quire.ledger.position import Position
from quire.wire.pulsar.names import TopicName
from quire.world.doors import Buffer

S = TypeVar("S", contravariant=True)
"""The subscriptions of a host."""


class Host(Protocol[S]):
    """Topic as used by its subscriptions."""

    context: Context
    name: TopicName
    ledger: ManagedLedger
    screen: EntryScreen
    published: Published | None
    """Record of what was stored; None: nothing was."""
    compaction: Compaction | None
    nursery: trio.Nursery
    closing: bool
    next_owner: str
    read_bound: Position | None
    """Nothing behind it is delivered, because a transaction is open; None: everything may be."""

    @property
    def policies(self) -> PoliciesSaid | None:
        """Return the policies of the topic; None: broker.conf's alone hold."""

    def delayed_delivery(self) -> DelayedDelivery:
        """Return the current rules for delayed messages."""

    def check_consumers(self, subscription: str, count: int) -> None:
        """Raise ConsumerBusyError if a limit of consumers is reached, of which the subscription has so many."""

    def dispatch_limit(self, subscription: S) -> DispatchLimit | None:
        """Return the rates that hold for a subscription; None: there are none."""

    def drop_if_unused(self, subscription: S) -> None:
        """Forget a non-durable subscription that has no consumer left."""

    async def delete_subscription(self, subscription: S) -> None:
        """Delete a subscription and its cursor durably. Raises ServiceNotReadyError."""


class ConsumerHome(Protocol):
    """Topic as used by its consumers."""

    @property
    def name(self) -> TopicName: ...

    @property
    def next_owner(self) -> str: ...

    @property
    def context(self) -> Context: ...

    @property
    def published(self) -> Published | None:
        """Return the record of what was stored; None: nothing was."""


class Source(Protocol):
    """Subscription as used by its consumers."""

    counts: Counts

    @property
    def name(self) -> str: ...

    @property
    def topic(self) -> ConsumerHome: ...


class Peer(Protocol):
    """Transport of a connection, as used here."""

    @property
    def peer(self) -> str:
        """Return the address of the other end."""


class Outlet(Protocol):
    """Client connection as used by its consumers."""

    client_version: str
    resuming: bool
    """True while nothing is dispatched to it, because its peer does not take what is queued."""

    @property
    def stream(self) -> Peer:
        """Return the connection's transport."""

    @property
    def closed(self) -> bool: ...

    @property
    def output_below_bound(self) -> bool:
        """Return whether more may be dispatched to it."""

    def write(self, parts: Sequence[Buffer]) -> None:
        """Queue output; it leaves when the pass ends."""

    def consumer_closed(self, consumer_id: int) -> None:
        """Forget a consumer."""

    async def alive(self) -> bool:
        """Return whether the peer gives a sign of life."""

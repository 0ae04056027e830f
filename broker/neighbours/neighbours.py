"""Neighbours: the clients of a broker, with the shares of their roles and addresses.

Without a limit there is no `Neighbours` object, and connections count nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio

from broker.errors import NotAllowedError
from broker.neighbours.config import NeighbourOptions
from broker.neighbours.shares import Share, ShareLimits, Shares
from broker.publish_budget import PublishBudget
from quire.service.neighbours.addresses import place_of


class Neighbours:
    """Shares of all roles and addresses at one broker."""

    def __init__(
        self, roles: ShareLimits, addresses: ShareLimits, publishing: PublishBudget, exempt: Iterable[str] = ()
    ) -> None:
        """`exempt`: roles without limits."""
        self._roles = Shares(roles)
        self._addresses = Shares(addresses)
        self._exempt = frozenset(exempt)
        self.publishing = publishing

    def meet(self, peer: str) -> Neighbour:
        """Return the client at the address `peer` (host:port), which has no role yet."""
        shares = [self._addresses.of(place_of(peer))] if self._addresses.limits.are_any else []
        return Neighbour(self, shares)

    def role(self, role: str) -> Share | None:
        """Return the share of a role; None: it has no limits."""
        return None if role in self._exempt or not self._roles.limits.are_any else self._roles.of(role)

    def sweep(self) -> None:
        """Forget shares that nothing needs. Called periodically."""
        now = trio.current_time()
        self._roles.sweep(now)
        self._addresses.sweep(now)


class Neighbour:
    """One connection, or one request to the web port, with the shares that it counts in."""

    __slots__ = ("_connected", "_neighbours", "_shares")

    def __init__(self, neighbours: Neighbours, shares: list[Share]) -> None:
        self._neighbours = neighbours
        self._shares = shares
        self._connected = 0
        """Shares in which the connection counts."""
        for share in shares:
            share.connections += 1
            self._connected += 1

    def log_in(self, role: str) -> str:
        """Count the connection for a role; return why it is refused, or an empty string."""
        share = self._neighbours.role(role)
        if share is None:
            return ""
        if refused := share.connect():
            return refused
        self._shares.append(share)
        self._connected += 1
        return ""

    def join(self, role: str) -> None:
        """Count what follows for a role, as one request to the web port does, which is no connection."""
        share = self._neighbours.role(role)
        if share is not None:
            self._shares.append(share)

    def log_out(self) -> None:
        """Count the connection no more. What it left in storage still counts."""
        for share in self._shares[: self._connected]:
            share.connections -= 1
        self._connected = 0

    # Requests and bytes

    def take_request(self) -> None:
        for share in self._shares:
            share.requests += 1

    def give_request(self) -> None:
        for share in self._shares:
            share.give_request()

    def take(self, size: int) -> None:
        """Count a run of entries that is handed to storage. Here and below as in PublishBudget, which counts it too."""
        self._neighbours.publishing.take(size)
        for share in self._shares:
            share.bytes += size

    def give(self, size: int) -> None:
        self._neighbours.publishing.give(size)
        for share in self._shares:
            share.give_bytes(size)

    def is_over(self, *, publishes: bool) -> bool:
        """Return whether the connection is not to be read."""
        return any(share.is_over(publishes=publishes) for share in self._shares)

    def is_low(self, *, publishes: bool) -> bool:
        return all(share.is_low(publishes=publishes) for share in self._shares)

    def tell(self, event: trio.Event) -> None:
        """Set `event` when a share, or the budget of all, is low again."""
        self._neighbours.publishing.tell(event)
        for share in self._shares:
            share.tell(event)

    def forget(self, event: trio.Event) -> None:
        self._neighbours.publishing.forget(event)
        for share in self._shares:
            share.forget(event)

    # Topics

    def make_topic(self) -> None:
        """Count a topic that is made. Raises NotAllowedError."""
        now = trio.current_time()
        for share in self._shares:
            if refused := share.make_topic(now):
                raise NotAllowedError(refused)


def neighbours_of(options: NeighbourOptions, publishing: PublishBudget, exempt: Iterable[str]) -> Neighbours | None:
    """Return the table of shares; None: there is no limit."""
    roles = ShareLimits(
        "role",
        options.role_connections_max,
        options.role_requests_max,
        publishing.limit * options.role_publish_percent // 100,
        options.role_topics_per_minute_max,
    )
    addresses = ShareLimits(
        "address",
        0,  # brokerMaxConnectionsPerIp
        options.address_requests_max,
        publishing.limit * options.address_publish_percent // 100,
        options.address_topics_per_minute_max,
    )
    if not roles.are_any and not addresses.are_any:
        return None
    return Neighbours(roles, addresses, publishing, exempt)

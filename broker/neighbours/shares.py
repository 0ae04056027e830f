"""Shares of a broker: what one role or one address has of it at the moment, and its limits (pure, save for events).

Why this is hard: what is counted outlives the connection that it came by. A client that publishes, disconnects and
connects again must not begin at zero, so a share stays in the table until all of it is given back. It is in the table
only while a connection, a request, bytes in storage or a minute with topics made need it, so the table is bounded by
the bounds of these.
"""

from __future__ import annotations

from dataclasses import dataclass

import trio

TOPICS_WINDOW_S = 60.0


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """Limits of each share of one kind; 0: none."""

    kind: str
    """Kind of neighbour that has such a share: role, address."""
    connections: int = 0
    requests: int = 0
    bytes: int = 0
    topics: int = 0
    """Topics made in a minute."""

    @property
    def are_any(self) -> bool:
        return bool(self.connections or self.requests or self.bytes or self.topics)


class Share:
    """Share of one role or address."""

    __slots__ = ("_topics", "_topics_end", "_waiting", "bytes", "connections", "key", "limits", "requests")

    def __init__(self, key: str, limits: ShareLimits) -> None:
        self.key = key
        self.limits = limits
        self.connections = 0
        self.requests = 0
        """Requests that are not answered."""
        self.bytes = 0
        """Payload bytes that are being stored."""
        self._topics = 0
        self._topics_end = 0.0
        """Topics made until then."""
        self._waiting: dict[trio.Event, None] = {}
        """Set, and removed, when requests and bytes are low again."""

    def connect(self) -> str:
        """Count a connection; return why it is refused, which does not count, or an empty string."""
        limit = self.limits.connections
        if limit and self.connections >= limit:
            return f"the {self.limits.kind} has {limit} connections already"
        self.connections += 1
        return ""

    def is_over(self, *, publishes: bool) -> bool:
        """Return whether a connection is not to be read. `publishes`: it has producers."""
        limits = self.limits
        return (0 < limits.requests < self.requests) or (publishes and 0 < limits.bytes < self.bytes)

    def is_low(self, *, publishes: bool) -> bool:
        """Return whether a connection that was stopped may be read on: at half of the limits."""
        limits = self.limits
        return (not limits.requests or self.requests <= limits.requests // 2) and (
            not publishes or not limits.bytes or self.bytes <= limits.bytes // 2
        )

    def give_request(self) -> None:
        self.requests -= 1
        self._wake()

    def give_bytes(self, size: int) -> None:
        self.bytes -= size
        self._wake()

    def make_topic(self, now: float) -> str:
        """Count a topic that is made; return why it may not be, or an empty string."""
        limit = self.limits.topics
        if not limit:
            return ""
        if now >= self._topics_end:
            self._topics, self._topics_end = 0, now + TOPICS_WINDOW_S
        if self._topics >= limit:
            return f"the {self.limits.kind} has made {limit} topics within a minute; try again after it"
        self._topics += 1
        return ""

    def is_unused(self, now: float) -> bool:
        """Return whether nothing needs the share any more."""
        return not (self.connections or self.requests or self.bytes) and now >= self._topics_end

    def tell(self, event: trio.Event) -> None:
        """Set `event` when the share is low again."""
        self._waiting[event] = None

    def forget(self, event: trio.Event) -> None:
        self._waiting.pop(event, None)

    def _wake(self) -> None:
        if self._waiting and self.is_low(publishes=True):
            for event in self._waiting:
                event.set()
            self._waiting.clear()


class Shares:
    """The shares of one kind."""

    def __init__(self, limits: ShareLimits) -> None:
        self.limits = limits
        self._by_key: dict[str, Share] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def of(self, key: str) -> Share:
        """Return the share of a role or address."""
        share = self._by_key.get(key)
        if share is None:
            share = self._by_key[key] = Share(key, self.limits)
        return share

    def sweep(self, now: float) -> None:
        """Forget shares that nothing needs. Called periodically."""
        for key in [key for key, share in self._by_key.items() if share.is_unused(now)]:
            del self._by_key[key]

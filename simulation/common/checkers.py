"""Invariants, under the names of the TLA+ specifications where they have one. Pure: facts in, ViolationError out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import TypeAlias

Place: TypeAlias = tuple[int, int]
"""(ledger id, entry id)"""


class ViolationError(AssertionError):
    """Violation of the invariant `name`."""

    def __init__(self, name: str, details: str) -> None:
        super().__init__(f"{name}: {details}")
        self.name = name


def require(holds: bool, name: str, details: str) -> None:
    if not holds:
        raise ViolationError(name, details)


def message(producer: str, number: int, size: int = 0) -> bytes:
    """Return the payload of a producer's message `number`, padded to `size` bytes."""
    return (b"%s/%d/" % (producer.encode(), number)).ljust(size, b".")


def numbered(payload: bytes) -> tuple[bytes, int]:
    """Return (producer, number) of a payload made by `message`."""
    producer, number, _ = payload.split(b"/", 2)
    return producer, int(number)


@dataclass
class SubscriptionHistory:
    """Observations of the consumers of one subscription."""

    ordered_by: str = "none"
    """Scope of the order of first deliveries: "all", "key", or "none"."""
    delivered: set[Place] = field(default_factory=set)
    acked: set[Place] = field(default_factory=set)
    """Acks sent, which may have arrived."""
    answered: set[Place] = field(default_factory=set)
    """Acks answered."""
    _last_first: dict[str, Place] = field(default_factory=dict)

    def first_delivery(self, place: Place, key: str) -> None:
        order = {"all": "", "key": key}.get(self.ordered_by)
        if order is None:
            return
        before = self._last_first.get(order, (-1, -1))
        require(
            before < place,
            "KeysStayInOrder",
            f"{place} (key {key}) is first delivered after {before} of the same order",
        )
        self._last_first[order] = place


@dataclass
class TopicHistory:
    """Observations of the clients of one topic, checked as they arrive."""

    topic: str
    confirmed: dict[Place, bytes] = field(default_factory=dict)
    delivered: dict[Place, bytes] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionHistory] = field(default_factory=dict)
    _last_receipt: dict[object, Place] = field(default_factory=dict)

    def receipt(self, connection: object, producer: str, place: Place, payload: bytes) -> None:
        """Record a producer's receipt over a connection."""
        known = self.confirmed.get(place)
        require(
            known is None, "NoOutOfOrderEntries", f"{self.topic} {place} confirmed twice: {known!r} and {payload!r}"
        )
        before = self._last_receipt.get((connection, producer))
        require(
            before is None or before < place, "NoOutOfOrderEntries", f"{self.topic}: receipt {place} after {before}"
        )
        self._last_receipt[connection, producer] = place
        self._same(place, payload)
        self.confirmed[place] = payload

    def delivery(
        self,
        subscription: str,
        place: Place,
        payload: bytes,
        key: str = "",
        *,
        done: Set[Place],
        delayed: bool = False,
    ) -> None:
        """Record a delivery to a consumer.

        `done`: entries that must not arrive over its connection any more, since their acks were answered before it
        subscribed, or over this connection. (A message of another consumer may have been under way when its ack was
        answered.) `delayed`: it waited for its time, so that later ones may have come before."""
        seen = self.subscriptions.setdefault(subscription, SubscriptionHistory())
        require(
            place not in done,
            "AnsweredAcksAreDurable",
            f"{self.topic} {subscription}: {place} delivered again after its ack was answered",
        )
        if place not in seen.delivered:
            if not delayed:
                seen.first_delivery(place, key)
            seen.delivered.add(place)
        self._same(place, payload)
        self.delivered[place] = payload

    def _same(self, place: Place, payload: bytes) -> None:
        for seen in (self.confirmed.get(place), self.delivered.get(place)):
            require(
                seen is None or seen == payload,
                "NoOutOfOrderEntries",
                f"{self.topic} {place} is {payload[:40]!r} and was {(seen or b'')[:40]!r}",
            )

    def ack_sent(self, subscription: str, places: Iterable[Place]) -> None:
        """Record a sent ack."""
        self.subscriptions.setdefault(subscription, SubscriptionHistory()).acked.update(places)

    def ack_answered(self, subscription: str, places: Iterable[Place]) -> None:
        """Record the answer to an ack with a request id."""
        self.subscriptions.setdefault(subscription, SubscriptionHistory()).answered.update(places)

    def up_to(self, last: Place) -> list[Place]:
        """Return every known place that a cumulative ack of `last` covers."""
        return sorted({place for seen in (self.confirmed, self.delivered) for place in seen if place <= last})

    def undelivered(self) -> list[tuple[str, Place]]:
        """Return confirmed entries that a subscription has neither received nor acknowledged (cumulatively)."""
        return [
            (name, place)
            for name, seen in self.subscriptions.items()
            for place in self.confirmed
            if place not in seen.delivered and place not in seen.acked
        ]

    def check_final(self, found: Mapping[Place, bytes], *, trimmed: bool = False) -> None:
        """Check `found`: everything a reader found from the beginning to the end, after the last restart, in its order.

        `trimmed`: entries acknowledged by every subscription may be gone."""
        require(list(found) == sorted(found), "NoOutOfOrderEntries", f"{self.topic}: the reader saw {list(found)}")
        for name, facts, broken in (
            ("AllAckedEntriesAreReadable", self.confirmed, "was confirmed and is lost"),
            ("NothingAboveLacIsDelivered", self.delivered, "was delivered and is gone"),
        ):
            for place, payload in facts.items():
                there = found.get(place)
                require(
                    there is not None or (trimmed and self._done_with(place)),
                    name,
                    f"{self.topic}: {place} {payload[:40]!r} {broken} ({len(found)} entries are left)",
                )
                require(there is None or there == payload, "NoOutOfOrderEntries", f"{self.topic}: {place} changed")
        if not trimmed:  # otherwise ledgers may be deleted while the reader approaches them
            self._check_producers(found)

    def _done_with(self, place: Place) -> bool:
        return all(place in seen.acked for seen in self.subscriptions.values())

    def _check_producers(self, found: Mapping[Place, bytes]) -> None:
        """Check that first copies of each producer's messages are in the order of its numbers, without a gap."""
        last: dict[bytes, int] = {}
        for payload in found.values():
            producer, number = numbered(payload)
            before = last.get(producer, -1)
            require(
                number <= before + 1,
                "NoOutOfOrderEntries",
                f"{self.topic}: {payload[:40]!r} comes after number {before}",
            )
            last[producer] = max(number, before)

"""Access to a topic for its producers: shared, or one at a time (pure).

    holder    the claim that has the topic for itself, from the moment it is granted: its producer is added only when
              the next topic epoch is durable
    waiting   claims in the order they came; the first has its turn when there is no holder and no other producer

The topic epoch counts the exclusive producers of a topic. A client keeps the one it was given, and gives it back when
it connects again: if another producer had the topic meanwhile, the epoch is higher, and the client is fenced. It is a
property of the log, so it survives unload, failover and crash.

What holds:
- OneHolder: while a claim is held no other producer is added, and none is connected beside its own.
- EpochsGrow: an epoch is given to one producer name and to nobody else; a claim with an older one is refused.
- TurnsInOrder: waiting claims are granted in the order they came, unless they are withdrawn or fenced.

Source: Pulsar's AbstractTopic.incrementTopicEpochIfNeeded and handleProducerRemoved, PersistentTopic.setTopicEpoch.
Different here: an outdated epoch is refused before it fences or waits, and a connection that is dead fences nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from broker.errors import BrokerError, ProducerBusyError, ProducerFencedError, ServiceNotReadyError
from quire.wire.pulsar import PulsarApi_pb2 as pb

EPOCH_PROPERTY: Final = "pulsar.topic.epoch"
"""Property of the log, a decimal number. Source: Pulsar's PersistentTopic."""
WAITING_MAX: Final = 1000
"""Producers of one topic that may wait for their turn."""


class Claim:
    """A producer that wants a topic for itself."""

    __slots__ = ("epoch", "name", "on_change", "producer", "refused")

    def __init__(self, name: str, epoch: int | None, on_change: Callable[[], None]) -> None:
        """Take the epoch that its client was given before, if any. `on_change`: called when a waiting claim has its
        turn, or is refused."""
        self.name = name
        self.epoch = epoch
        self.on_change = on_change
        self.producer: object = None
        """Set when it is added."""
        self.refused: BrokerError | None = None


class Access:
    """Access to one topic, from its first claim on."""

    __slots__ = ("holder", "waiting")

    def __init__(self) -> None:
        self.holder: Claim | None = None
        self.waiting: dict[Claim, None] = {}

    def check_shared(self) -> None:
        """Raise ProducerBusyError if a producer that shares the topic may not be added."""
        if self.holder is not None or self.waiting:
            raise ProducerBusyError(self._taken())

    def claim(self, claim: Claim, mode: pb.ProducerAccessMode, connected: Collection[str]) -> bool:
        """Grant the claim and return True, or let it wait and return False.

        ExclusiveWithFencing: the caller ends all producers that are connected. Raises ProducerFencedError,
        ProducerBusyError (too many wait)."""
        if mode == pb.ExclusiveWithFencing:
            self.refuse_all(lambda: ProducerFencedError(f"Fenced out by {claim.name}"))
        elif self.holder is not None or self.waiting or connected:
            if mode != pb.WaitForExclusive:
                shared = self.holder is None and not self.waiting
                raise ProducerFencedError("Topic has existing shared producers" if shared else self._taken())
            if len(self.waiting) >= WAITING_MAX:
                raise ProducerBusyError(f"{WAITING_MAX} producers wait for the topic already")
            self.waiting[claim] = None
            return False
        self.holder = claim
        return True

    def refuse_all(self, error: Callable[[], BrokerError]) -> None:
        """Refuse the waiting claims, and one that is held without a producer."""
        refused = list(self.waiting)
        self.waiting = {}
        if self.holder is not None and self.holder.producer is None:
            refused.append(self.holder)
        self.holder = None
        for claim in refused:
            claim.refused = error()
            claim.on_change()

    def close(self) -> None:
        """Refuse all claims with a passing error, because the topic is being closed: their clients look it up again."""
        self.refuse_all(lambda: ServiceNotReadyError("the topic is being closed; look it up again"))

    def withdraw(self, claim: Claim, connected: Iterable[str]) -> None:
        """Forget a claim whose producer was not added."""
        self.waiting.pop(claim, None)
        if self.holder is claim:
            self.holder = None
        self._next(connected)

    def left(self, producer: object, connected: Iterable[str]) -> None:
        """Note that a producer is gone. `connected`: those that remain."""
        if self.holder is not None and self.holder.producer is producer:
            self.holder = None
        self._next(connected)

    def _next(self, connected: Iterable[str]) -> None:
        if self.holder is None and self.waiting and not any(True for _ in connected):
            self.holder = next(iter(self.waiting))
            del self.waiting[self.holder]
            self.holder.on_change()

    def _taken(self) -> str:
        name = next(iter(self.waiting)).name if self.holder is None else self.holder.name
        return f"Topic has an existing exclusive producer: {name}"


def topic_epoch(properties: Iterable[tuple[str, str]]) -> int | None:
    """Return the topic epoch that the properties of a log have; None if it never had an exclusive producer.

    >>> topic_epoch([("a", "b"), ("pulsar.topic.epoch", "7")])
    7
    """
    for key, text in properties:
        if key == EPOCH_PROPERTY:
            return int(text) if text.isascii() and text.isdecimal() else None
    return None


def check_epoch(epoch: int | None, current: int | None) -> None:
    """Raise ProducerFencedError if another producer had the topic since the client was given this epoch."""
    if epoch is not None and current is not None and epoch < current:
        raise ProducerFencedError(f"Topic epoch has already moved. Current epoch: {current}, Producer epoch: {epoch}")


def with_epoch_of(claim: Claim, properties: dict[str, str]) -> dict[str, str]:
    """Return the properties with the epoch of a claim that is granted: the one it came with, or the next.

    Raises ProducerFencedError if the epoch that it came with is outdated."""
    current = topic_epoch(properties.items())
    check_epoch(claim.epoch, current)
    if claim.epoch is None:
        claim.epoch = 0 if current is None else current + 1
    return {**properties, EPOCH_PROPERTY: str(claim.epoch)}

"""Permits: the messages each consumer of a subscription may still be sent.

Why this is hard: permits count messages but entries are delivered whole, so a batch may overdraw them, and a consumer
may be unable to receive (paused) although it has permits. The totals are asked for on every pass and must not cost a
walk over all consumers."""

from __future__ import annotations

from collections import Counter
from typing import Generic, TypeVar

C = TypeVar("C")


class Slot(Generic[C]):
    """One consumer as its policy uses it."""

    __slots__ = ("consumer", "held", "paused", "permits")

    def __init__(self, consumer: C) -> None:
        self.consumer = consumer
        self.permits = 0
        """Requested messages not delivered yet. An entry is delivered while this is above 0 and takes as many as it has
        messages, so one batch may bring it below 0."""
        self.paused = False
        """True while it is paused: it receives nothing, whatever it asked for."""
        self.held: Counter[int] = Counter()
        """Key_Shared: entries held and not acknowledged, by hash."""

    @property
    def is_ready(self) -> bool:
        """Return whether something can be delivered to it."""
        return self.permits > 0 and not self.paused


class Permits(Generic[C]):
    """Consumers of one subscription, in the order in which they joined. Consumers are compared by identity."""

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: dict[C, Slot[C]] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def _add(self, consumer: C) -> Slot[C]:
        assert consumer not in self._slots, "a consumer joins once"
        slot = self._slots[consumer] = Slot(consumer)
        return slot

    def flow(self, consumer: C, permits: int, most: int) -> None:
        """Add `permits` to a consumer; at most `most` are kept."""
        slot = self._slots[consumer]
        slot.permits = min(slot.permits + permits, most)

    def pause(self, consumer: C, paused: bool) -> None:
        """Pause or resume a consumer; its permits stay."""
        self._slots[consumer].paused = paused

    def permits(self, consumer: C) -> int:
        """Return the remaining permits; below 0 after a batch larger than they were, 0 for an unknown consumer."""
        slot = self._slots.get(consumer)
        return 0 if slot is None else slot.permits

    @property
    def available(self) -> int:
        """Return the messages that can be sent now, over all consumers."""
        return sum(slot.permits for slot in self._slots.values() if slot.permits > 0 and not slot.paused)

    @property
    def has_permits(self) -> bool:
        """Return whether any consumer can be sent something."""
        return any(slot.permits > 0 and not slot.paused for slot in self._slots.values())

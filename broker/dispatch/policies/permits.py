"""What each consumer of a subscription may still be sent."""

from __future__ import annotations

from typing import Generic, TypeVar

C = TypeVar("C")


class Slot(Generic[C]):
    """One consumer as its policy sees it."""

    __slots__ = ("consumer", "held", "paused", "permits")

    def __init__(self, consumer: C) -> None:
        self.consumer = consumer
        self.permits = 0
        """Messages it asked for and did not get yet. An entry is given while this is above 0 and takes as many as it
        has messages, so one batch may bring it below 0."""
        self.paused = False
        """Gets nothing until it is no longer paused, whatever it asked for."""
        self.held: dict[int, int] = {}
        """Key_Shared: entries held and not acknowledged, by hash."""

    @property
    def is_ready(self) -> bool:
        """Return whether it can be given something."""
        return self.permits > 0 and not self.paused


class Permits(Generic[C]):
    """The consumers of one subscription, in the order in which they came. Consumers are told apart by identity."""

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
        """The consumer asks for `permits` more messages; more than `most` are never kept for it."""
        slot = self._slots[consumer]
        slot.permits = min(slot.permits + permits, most)

    def pause(self, consumer: C, paused: bool) -> None:
        """Give it nothing until it is no longer paused; its permits stay."""
        self._slots[consumer].paused = paused

    def permits(self, consumer: C) -> int:
        """What is left of its permits; below 0 after a batch larger than they were. 0 for a stranger."""
        slot = self._slots.get(consumer)
        return 0 if slot is None else slot.permits

    @property
    def available(self) -> int:
        """Messages that all together can be sent now."""
        return sum(slot.permits for slot in self._slots.values() if slot.permits > 0 and not slot.paused)

    @property
    def has_permits(self) -> bool:
        """Whether anybody can be sent something."""
        return any(slot.permits > 0 and not slot.paused for slot in self._slots.values())

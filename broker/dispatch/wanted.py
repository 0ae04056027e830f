"""Part of a run of entries that a subscription still wants: not acknowledged, and not held in a transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from cursors.cursor import Cursor
from quire.ledger.position import Position
from quire.world.outbox import PASS_WORK

ACK_SET_COST = 6
"""Additional cost of an entry in the work of a pass while batches are acknowledged in part: each is looked up, and has
a head of its own (5.7 us instead of 2.0 for one to a Shared consumer)."""
C = TypeVar("C", contravariant=True)
"""The consumers of a subscription."""
WORD_MASK = (1 << 64) - 1


def wanted_messages(ack_set: Sequence[int]) -> int:
    """Return how many messages of a batch its bitmap (signed words) still asks for, at least 1."""
    return max(1, sum((word & WORD_MASK).bit_count() for word in ack_set))


class HeldSummary(NamedTuple):
    """Acknowledgements of a subscription in open transactions."""

    entries: int
    """Entries acknowledged one by one, at least in part."""
    upto: Position | None
    """Entry up to which one of them acknowledged everything."""
    transactions: int
    oldest: tuple[int, int]


class HeldInTransactions(Protocol):
    """Acknowledgements in open transactions."""

    def summary(self) -> HeldSummary | None:
        """Return what is held, for operators; None: nothing is."""

    @property
    def is_empty(self) -> bool: ...

    def is_held(self, position: Position, cursor: Cursor) -> bool:
        """Return whether nothing is left to deliver of an entry."""

    def wanted_runs(self, ledger_id: int, runs: Sequence[tuple[int, int]], cursor: Cursor) -> list[tuple[int, int]]:
        """Return `runs` (first entry, count) without such entries."""

    def wanted_words(self, position: Position, cursor: Cursor) -> list[int] | None:
        """Return the messages of a batch to be delivered, as `Cursor.ack_set`."""


class WantedEntries(ABC, Generic[C]):
    """Part of a subscription."""

    entry_cost = 1
    """Cost of an entry in the work of a pass."""
    cursor: Cursor
    held_in_transactions: HeldInTransactions | None
    """Set from the first acknowledgement in a transaction on."""

    @property
    def cost_now(self) -> int:
        """Return the present cost of an entry in the work of a pass."""
        return self.entry_cost + ACK_SET_COST if self.cursor.has_ack_sets else self.entry_cost

    def _read_at_once(self, count: int) -> int:
        """Return how many of `count` entries to read at the bookies: all of a read is delivered in one step."""
        return min(count, PASS_WORK // self.cost_now) if self.cursor.has_ack_sets else count

    def _not_held(self, ledger_id: int, runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return `runs` (first entry, count) without entries that are held as a whole."""
        held = self.held_in_transactions
        return runs if held is None or held.is_empty else held.wanted_runs(ledger_id, runs, self.cursor)

    def _is_unwanted(self, position: Position) -> bool:
        """Return whether an entry is acknowledged, or held as a whole."""
        held = self.held_in_transactions
        return self.cursor.is_acked(position) or (held is not None and held.is_held(position, self.cursor))

    def _unwanted(self) -> Callable[[Position], bool]:
        """Return `_is_unwanted`, for many entries."""
        return self.cursor.is_acked if self.held_in_transactions is None else self._is_unwanted

    def _wanted_words(self, position: Position) -> list[int] | None:
        """Return the messages still wanted of a batch that is acknowledged, or held, in part; else None."""
        held = self.held_in_transactions
        return self.cursor.ack_set(position) if held is None else held.wanted_words(position, self.cursor)

    def hold_in_transaction(self, consumer: C, positions: Sequence[Position]) -> None:
        """Note that a consumer acknowledged whole entries in a transaction: it does not hold them any more."""

    @abstractmethod
    def deliver_again(self, positions: Sequence[Position]) -> None:
        """Deliver entries that an aborted transaction acknowledged."""

    @abstractmethod
    def release_committed(self, positions: Sequence[Position]) -> None:
        """Release what consumers hold of entries that a committed transaction acknowledged in part."""

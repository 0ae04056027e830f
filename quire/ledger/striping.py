"""Striping: which bookies of an ensemble store which entries. Pure.

Why this is hard: the rule is simple for one entry, but the hot path works on runs of entries, and the part of a run
that a bookie stores must be found without a loop over its entries.

    write set of entry e = indices (e + i) mod E, i = 0 .. Qw-1        E = ensemble size, Qw = write quorum

With E = 3 and Qw = 2, bookie 0 stores entries 0, 2, 3, 5, 6, 8 ...: the entries it does not store form gaps that repeat
with period E.

Source: BookKeeper's RoundRobinDistributionSchedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import compress, cycle
from typing import TypeVar

T = TypeVar("T")


class Striping:
    """Round-robin rule for one ensemble size and write quorum."""

    __slots__ = ("ensemble_size", "striped", "write_quorum")

    def __init__(self, ensemble_size: int, write_quorum: int) -> None:
        assert 0 < write_quorum <= ensemble_size, f"E={ensemble_size}, Qw={write_quorum}"
        self.ensemble_size = ensemble_size
        self.write_quorum = write_quorum
        self.striped = write_quorum < ensemble_size
        """False when every bookie stores every entry, the usual case."""

    def write_set(self, entry_id: int) -> list[int]:
        """Return the ensemble indices that store the entry, in the order in which readers try them.

        >>> Striping(5, 3).write_set(4)
        [4, 0, 1]
        """
        size = self.ensemble_size
        return [(entry_id + i) % size for i in range(self.write_quorum)]

    def stores(self, index: int, entry_id: int) -> bool:
        return (index - entry_id) % self.ensemble_size < self.write_quorum

    def stored_from(self, index: int, entry_id: int) -> int:
        """Return the first entry from `entry_id` on that bookie `index` stores.

        >>> Striping(5, 2).stored_from(0, 1)
        4
        """
        distance = (index - entry_id) % self.ensemble_size
        return entry_id if distance < self.write_quorum else entry_id + distance - self.write_quorum + 1

    def stored_until(self, index: int, entry_id: int) -> int:
        """Return the last entry up to `entry_id` that bookie `index` stores (may be negative: the rule continues below
        0).

        >>> Striping(5, 2).stored_until(0, 3)
        0
        """
        distance = (index - entry_id) % self.ensemble_size
        return entry_id if distance < self.write_quorum else entry_id - (self.ensemble_size - distance)

    def select(self, index: int, first: int, items: Sequence[T]) -> list[T]:
        """Return those of `items`, which belong to the entries from `first` on, that bookie `index` stores.

        >>> Striping(3, 2).select(0, 10, ["10", "11", "12", "13"])
        ['11', '12']
        """
        if not self.striped:
            return list(items)
        pattern = [self.stores(index, first + i) for i in range(self.ensemble_size)]
        return list(compress(items, cycle(pattern)))

    def write_sets(self) -> list[list[int]]:
        """Return all distinct write sets, one per rotation."""
        return [self.write_set(rotation) for rotation in range(self.ensemble_size)]


@lru_cache(maxsize=64)
def striping_of(ensemble_size: int, write_quorum: int) -> Striping:
    """Return the rule for these sizes, shared by all ledgers that have them."""
    return Striping(ensemble_size, write_quorum)

"""Which bookies of an ensemble store which entries. Pure.

    write set of entry e = indices (e + i) mod E, i = 0 .. Qw-1        E = ensemble size, Qw = write quorum

With E = 3, Qw = 2 bookie 0 stores entries 0, 2, 3, 5, 6, 8 ...: what it does not store are single gaps or longer ones
that come back with period E.

Source: BookKeeper's RoundRobinDistributionSchedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import compress, cycle
from typing import TypeVar

T = TypeVar("T")


class Striping:
    """The round-robin rule for one ensemble size and write quorum."""

    __slots__ = ("ensemble_size", "striped", "write_quorum")

    def __init__(self, ensemble_size: int, write_quorum: int) -> None:
        assert 0 < write_quorum <= ensemble_size, f"E={ensemble_size}, Qw={write_quorum}"
        self.ensemble_size = ensemble_size
        self.write_quorum = write_quorum
        self.striped = write_quorum < ensemble_size
        """False when every bookie stores every entry, the usual case."""

    def write_set(self, entry_id: int) -> list[int]:
        """Ensemble indices that store the entry, in the order in which readers try them.

        >>> Striping(5, 3).write_set(4)
        [4, 0, 1]
        """
        size = self.ensemble_size
        return [(entry_id + i) % size for i in range(self.write_quorum)]

    def stores(self, index: int, entry_id: int) -> bool:
        return (index - entry_id) % self.ensemble_size < self.write_quorum

    def stored_from(self, index: int, entry_id: int) -> int:
        """The first entry from `entry_id` on that bookie `index` stores.

        >>> Striping(5, 2).stored_from(0, 1)
        4
        """
        distance = (index - entry_id) % self.ensemble_size
        return entry_id if distance < self.write_quorum else entry_id + distance - self.write_quorum + 1

    def stored_until(self, index: int, entry_id: int) -> int:
        """The last entry up to `entry_id` that bookie `index` stores (may be negative, as entry ids go on below 0).

        >>> Striping(5, 2).stored_until(0, 3)
        0
        """
        distance = (index - entry_id) % self.ensemble_size
        return entry_id if distance < self.write_quorum else entry_id - (self.ensemble_size - distance)

    def select(self, index: int, first: int, items: Sequence[T]) -> list[T]:
        """Those of `items`, which belong to the entries from `first` on, that bookie `index` stores.

        >>> Striping(3, 2).select(0, 10, ["10", "11", "12", "13"])
        ['11', '12']
        """
        if not self.striped:
            return list(items)
        pattern = [self.stores(index, first + i) for i in range(self.ensemble_size)]
        return list(compress(items, cycle(pattern)))

    def write_sets(self) -> list[list[int]]:
        """All distinct write sets, one per rotation."""
        return [self.write_set(rotation) for rotation in range(self.ensemble_size)]


@lru_cache(maxsize=64)
def striping_of(ensemble_size: int, write_quorum: int) -> Striping:
    """The one rule for these sizes, shared by all ledgers that have them."""
    return Striping(ensemble_size, write_quorum)

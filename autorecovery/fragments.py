"""Fragments of a ledger for repair: their entries, the entries that each member should have, and faults. Pure.

    fragment           entries first .. last (inclusive; last = first - 1: none) on E members
    closed             no entry can be added: every fragment but the last one, and that one too once the ledger
                       is CLOSED
    member at index i  has the entries whose write set includes i (`quire.ledger.striping`)

Of the last fragment of a ledger that is not closed only the first entry is known, and how far it is confirmed.

Source: BookKeeper's LedgerFragment, LedgerChecker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from quire.ledger.reading.copies import BadCopy, CopyFault
from quire.ledger.striping import Striping
from quire.metadata.ledgers import LedgerMetadata, LedgerState
from quire.world.doors import Rng


class LostReason(Enum):
    """Reasons why a member has no good copies, whatever it would answer."""

    LOST = "lost"
    """The member is not registered."""
    MISPLACED = "misplaced"
    """Its copies are good, but violate the placement policy."""
    INCOMPLETE = "incomplete"
    """The member lists some of its entries, and not all."""


Fault = CopyFault | LostReason
"""Fault of a member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFragment:
    """Entries `first` to `last` of a ledger, and the bookies that should have them."""

    ledger_id: int
    first: int
    last: int
    bookies: tuple[str, ...]
    write_quorum: int
    closed: bool
    striping: Striping = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "striping", Striping(len(self.bookies), self.write_quorum))

    @property
    def empty(self) -> bool:
        return self.last < self.first

    def span_of(self, index: int) -> tuple[int, int] | None:
        """Return the first and the last entry that the member at `index` should have; None if it has none."""
        first = self.striping.stored_from(index, self.first)
        last = self.striping.stored_until(index, self.last)
        return (first, last) if self.first <= first <= last else None

    def entries_of(self, index: int) -> Sequence[int]:
        """Return all entries that the member at `index` should have, ascending."""
        span = self.span_of(index)
        if span is None:
            return ()
        entry_ids = range(span[0], span[1] + 1)
        return entry_ids if not self.striping.striped else self.striping.select(index, span[0], entry_ids)

    def entries_of_any(self, indices: Collection[int]) -> Sequence[int]:
        """Return all entries that any of the members should have, ascending."""
        if not self.striping.striped:
            return range(self.first, self.last + 1) if indices else ()
        stores = self.striping.stores
        return [each for each in range(self.first, self.last + 1) if any([stores(index, each) for index in indices])]

    def sample_of(self, index: int, percentage: int, rng: Rng) -> Sequence[int]:
        """Choose entries of the member at `index` to read: at least the first and the last.

        In all about `percentage` of the entries that it should have are chosen, at random.
        """
        span = self.span_of(index)
        if span is None:
            return ()
        first, last = span
        if percentage <= 0:
            return (first, last) if first < last else (first,)
        entry_ids = self.entries_of(index)
        wanted = len(entry_ids) * percentage // 100
        if wanted >= len(entry_ids):
            return entry_ids
        chosen = {first, last}
        for number in range(wanted):
            start, end = number * len(entry_ids) // wanted, (number + 1) * len(entry_ids) // wanted
            chosen.add(entry_ids[rng.randrange(start, end)])
        return sorted(chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadFragment:
    """A fragment, and its members that lack copies they should have."""

    fragment: LedgerFragment
    faults: Mapping[int, Fault]
    """Faults by index in the ensemble."""
    lacking: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Entries that an INCOMPLETE member does not list, by index in the ensemble, ascending."""
    examples: tuple[BadCopy, ...] = ()
    """Bad copies, one example for each member that was asked."""

    @property
    def ledger_id(self) -> int:
        return self.fragment.ledger_id

    @property
    def bookies(self) -> tuple[str, ...]:
        """Return the members with faults."""
        return tuple([self.fragment.bookies[index] for index in sorted(self.faults)])

    def __str__(self) -> str:
        members = ", ".join([f"{self.fragment.bookies[each]} {fault.value}" for each, fault in self.faults.items()])
        return f"entries {self.fragment.first} to {self.fragment.last} of ledger {self.ledger_id}: {members}"


def fragments_of(ledger_id: int, metadata: LedgerMetadata, lac: int = -1) -> list[LedgerFragment]:
    """Return the fragments in order. `lac`: how far a ledger that is not closed is confirmed, as far as known."""
    closed = metadata.state is LedgerState.CLOSED
    made: list[LedgerFragment] = []
    for place, each in enumerate(metadata.fragments):
        is_last = place == len(metadata.fragments) - 1
        end = metadata.last_entry_id if closed else max(lac, each.first_entry_id - 1)
        made.append(
            LedgerFragment(
                ledger_id=ledger_id,
                first=each.first_entry_id,
                last=end if is_last else metadata.fragments[place + 1].first_entry_id - 1,
                bookies=each.bookies,
                write_quorum=metadata.write_quorum,
                closed=closed or not is_last,
            )
        )
    return made


def must_be_closed(metadata: LedgerMetadata, lac: int, there: Collection[str] | None) -> bool:
    """Return whether the ledger must be closed before its copies can be restored.

    It must if it is open and a member of its last fragment is not registered (also of the one before, if that may still
    be written to). If another member were lost, the end of the ledger could not be determined any more. `there`:
    registered bookies, None if unknown.

    Source: BookKeeper's ReplicationWorker.isLastSegmentOpenAndMissingBookies; we take read-only bookies as there: they
    serve the reads of a recovery.
    """
    if metadata.state is LedgerState.CLOSED or there is None:
        return False
    open_ones = metadata.fragments[-1:]
    if len(metadata.fragments) > 1 and lac < metadata.fragments[-1].first_entry_id - 1:
        open_ones = metadata.fragments[-2:]
    return any([bookie not in there for each in open_ones for bookie in each.bookies])


def batches(entry_ids: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Yield the entries, `size` at a time.

    >>> list(batches([1, 2, 3], 2))
    [[1, 2], [3]]
    """
    for at in range(0, len(entry_ids), size):
        yield entry_ids[at : at + size]

"""Loss of a bookie, before it happens (pure): the ledgers that would lose copies, and what a repair would have to do.

    survivors     bookies that would still answer: registered now, and not the one that goes
    copies        survivors in the write set of an entry; the worst entry of a ledger counts

      copies < write quorum     a copy is missing, auto recovery makes it again
      copies < ack quorum       fewer copies than were acknowledged
      copies = 0                the entry cannot be read

Why this is hard: an answer that comforts must be right. Each write set that really has entries is examined, not the
ensemble as a whole; the end of an open ledger is unknown, so any of its write sets may have entries; bookies that are
gone already are counted, and named apart from what the loss adds. Ledgers that were not examined are no part of the
answer: their number stands beside it.

Sizes are estimates: a ledger's payload times the share of its entries on the bookie. The metadata of an open ledger
has no size, so open ledgers are counted apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from broker.console.cluster_ledgers import OPEN_END, FragmentRow, LedgerTable, TableRow, stored
from quire.ledger.errors import NotEnoughBookiesError
from quire.ledger.placement.policy import Adherence, EnsemblePlacementPolicy

ENSEMBLES_MAX: Final = 2000
"""Different ensembles for which a replacement is searched."""
OWNERS_SHOWN: Final = 200
LEDGERS_SHOWN: Final = 100


class Harm(IntEnum):
    """State of the worst entry of a ledger."""

    NONE = 0
    BELOW_WRITE_QUORUM = 1
    BELOW_ACK_QUORUM = 2
    UNREADABLE = 3


def harm_of(copies: int, write_quorum: int, ack_quorum: int) -> Harm:
    """Return the state of an entry with so many copies."""
    if copies == 0:
        return Harm.UNREADABLE
    if copies < ack_quorum:
        return Harm.BELOW_ACK_QUORUM
    return Harm.BELOW_WRITE_QUORUM if copies < write_quorum else Harm.NONE


def write_sets(size: int, quorum: int, first: int, last: int) -> Iterator[list[int]]:
    """Yield the write sets that have entries from `first` to `last`; OPEN_END: any may have.

    >>> list(write_sets(3, 2, 4, 4)), len(list(write_sets(3, 2, 0, OPEN_END)))
    ([[1, 2]], 3)
    """
    count = size if last == OPEN_END else min(size, last - first + 1)
    for step in range(count):
        yield [(first + step + place) % size for place in range(quorum)]


def worst_harm(row: TableRow, survivors: Collection[int]) -> Harm:
    """Return the state of the worst entry of a ledger, if only these bookies answer."""
    layout, worst = row.layout, Harm.NONE
    size, quorum = layout.ensemble_size, layout.write_quorum
    for fragment, last in row.spans():
        there = [member in survivors for member in fragment.members]
        if all(there):
            continue
        for members in write_sets(size, quorum, fragment.first, last):
            found = harm_of(sum(there[member] for member in members), quorum, layout.ack_quorum)
            worst = max(worst, found)
    return worst


@dataclass(frozen=True, slots=True)
class EnsembleKey:
    """An ensemble that would need another member."""

    members: tuple[int, ...]
    write_quorum: int
    ack_quorum: int


@dataclass(slots=True)
class OwnerHarm:
    """Ledgers of one owner that would lose copies."""

    ledgers: int = 0
    worst: Harm = Harm.NONE


@dataclass(slots=True)
class Loss:
    """Harm that the loss of one bookie would do, as far as the ledgers were examined."""

    bookie: int
    survivors: frozenset[int]
    """Numbers of the bookies that would still answer."""
    before: frozenset[int]
    """Numbers of those that answer now."""
    examined: int = 0
    affected: int = 0
    """Ledgers with copies on the bookie."""
    open_ledgers: int = 0
    """Affected ledgers that are not closed; what they have on the bookie is not in `copy_bytes`."""
    copy_bytes: int = 0
    """Payload bytes to copy to other bookies, estimated."""
    copy_entries: int = 0
    """Entries to copy, of fragments whose end is known."""
    by_harm: dict[Harm, int] = field(default_factory=lambda: dict.fromkeys(Harm, 0))
    """Affected ledgers by what they would be then."""
    by_harm_now: dict[Harm, int] = field(default_factory=lambda: dict.fromkeys(Harm, 0))
    """The same ledgers by what they are now."""
    owners: dict[int, OwnerHarm] = field(default_factory=dict)
    ledgers: list[tuple[int, Harm]] = field(default_factory=list)
    """Some of the ledgers below their ack quorum: the first ones found of each kind."""
    ensembles: dict[EnsembleKey, int] = field(default_factory=dict)
    """Fragments by ensemble, of at most ENSEMBLES_MAX."""
    fragments: int = 0
    """Fragments with copies on the bookie."""

    def add(self, row: TableRow) -> None:
        """Examine one more ledger."""
        self.examined += 1
        layout, bookie = row.layout, self.bookie
        size, quorum, total = layout.ensemble_size, layout.write_quorum, row.last + 1
        hit = False
        for fragment, last in row.spans():
            if bookie not in fragment.members:
                continue
            index = fragment.members.index(bookie)
            own = 0 if last == OPEN_END else stored(size, quorum, index, fragment.first, last)
            if last != OPEN_END and not own:
                continue
            hit = True
            self.copy_entries += own
            if total > 0:
                self.copy_bytes += row.length * own // total
            self._count_ensemble(fragment, quorum, layout.ack_quorum)
        if not hit:
            return
        self.affected += 1
        self.open_ledgers += row.is_open
        then, now = worst_harm(row, self.survivors), worst_harm(row, self.before)
        self.by_harm[then] += 1
        self.by_harm_now[now] += 1
        owner = self.owners.get(row.owner)
        if owner is None:
            owner = self.owners[row.owner] = OwnerHarm()
        owner.ledgers += 1
        owner.worst = max(owner.worst, then)
        if then >= Harm.BELOW_ACK_QUORUM and self.by_harm[then] <= LEDGERS_SHOWN:
            self.ledgers.append((row.ledger_id, then))

    def _count_ensemble(self, fragment: FragmentRow, write_quorum: int, ack_quorum: int) -> None:
        self.fragments += 1
        key = EnsembleKey(fragment.members, write_quorum, ack_quorum)
        if key in self.ensembles or len(self.ensembles) < ENSEMBLES_MAX:
            self.ensembles[key] = self.ensembles.get(key, 0) + 1


@dataclass(slots=True)
class Room:
    """Room on the other bookies for the copies, by the placement policy."""

    fragments: int = 0
    """Fragments whose ensemble was examined."""
    without_room: int = 0
    """Fragments for which there is no other bookie."""
    soft: int = 0
    """Fragments whose ensemble would then meet the policy in part only, and does not now."""
    violating: int = 0
    """Fragments whose ensemble would then violate the policy, and does not now."""
    violating_now: int = 0
    """Fragments whose ensemble violates the policy already."""
    quorums_short: set[tuple[int, int, int]] = field(default_factory=set)
    """Ensemble size, write quorum and ack quorum that a new ledger could not have any more."""
    quorums: set[tuple[int, int, int]] = field(default_factory=set)

    def examine(
        self,
        key: EnsembleKey,
        count: int,
        bookies: list[str],
        survivors: Collection[str],
        policy: EnsemblePlacementPolicy,
    ) -> None:
        """Search other bookies for an ensemble, which stands for `count` fragments.

        Args:
            survivors: bookies that would still answer.
            policy: the placement policy, which knows only the writable ones of them.
        """
        ensemble = [bookies[member] for member in key.members]
        size = len(ensemble)
        self.fragments += count
        self.quorums.add((size, key.write_quorum, key.ack_quorum))
        now = policy.adherence(ensemble, key.write_quorum, key.ack_quorum)
        self.violating_now += count * (now is Adherence.FAIL)
        failed = {index: bookie for index, bookie in enumerate(ensemble) if bookie not in survivors}
        try:
            repaired = policy.replace_bookie(size, key.write_quorum, key.ack_quorum, ensemble, failed)
        except NotEnoughBookiesError:
            self.without_room += count
            return
        then = policy.adherence(repaired, key.write_quorum, key.ack_quorum)
        self.soft += count * (then is Adherence.MEETS_SOFT and now is not Adherence.MEETS_SOFT)
        self.violating += count * (then is Adherence.FAIL and now is not Adherence.FAIL)

    def examine_new(self, policy: EnsemblePlacementPolicy) -> None:
        """Find the quorums that new ledgers could not have any more."""
        for size, write_quorum, ack_quorum in sorted(self.quorums):
            try:
                policy.new_ensemble(size, write_quorum, ack_quorum)
            except NotEnoughBookiesError:
                self.quorums_short.add((size, write_quorum, ack_quorum))


def loss_json(loss: Loss, room: Room, table: LedgerTable, total: int | None) -> dict[str, Any]:
    """Return the answer as JSON. `total`: the ledgers there are; None: it is not known yet."""
    owners = sorted(loss.owners.items(), key=lambda each: (-each[1].worst, -each[1].ledgers, table.owners[each[0]]))
    return {
        "bookie": table.bookies[loss.bookie] if 0 <= loss.bookie < len(table.bookies) else "",
        "examined": loss.examined,
        "total": total,
        "affected": loss.affected,
        "open": loss.open_ledgers,
        "copyBytes": loss.copy_bytes,
        "copyEntries": loss.copy_entries,
        "then": _counts(loss.by_harm),
        "now": _counts(loss.by_harm_now),
        "ledgers": [{"ledger": ledger_id, "harm": harm.name} for ledger_id, harm in loss.ledgers],
        "owners": [
            {**table.owners[number].as_json(), "ledgers": each.ledgers, "harm": each.worst.name}
            for number, each in owners[:OWNERS_SHOWN]
        ],
        "ownersTotal": len(owners),
        "topicsTotal": len({table.owners[number].name for number in loss.owners if table.owners[number].name}),
        "placement": {
            "fragments": loss.fragments,
            "examined": room.fragments,
            "withoutRoom": room.without_room,
            "soft": room.soft,
            "violating": room.violating,
            "violatingNow": room.violating_now,
            "newLedgersImpossible": sorted(room.quorums_short),
        },
        "verdict": verdict_of(loss, room),
    }


def _counts(by_harm: Mapping[Harm, int]) -> dict[str, int]:
    """Return ledgers by what they are below; an unreadable one is below both quorums, too."""
    unreadable = by_harm[Harm.UNREADABLE]
    below_ack = by_harm[Harm.BELOW_ACK_QUORUM] + unreadable
    return {
        "belowWriteQuorum": by_harm[Harm.BELOW_WRITE_QUORUM] + below_ack,
        "belowAckQuorum": below_ack,
        "unreadable": unreadable,
    }


def verdict_of(loss: Loss, room: Room) -> str:
    """Return the answer in one word: nothing, repairable, no-room, at-risk or lost."""
    if not loss.affected:
        return "nothing"
    if loss.by_harm[Harm.UNREADABLE] > 0:
        return "lost"
    if room.without_room:
        return "no-room"
    return "at-risk" if loss.by_harm[Harm.BELOW_ACK_QUORUM] else "repairable"

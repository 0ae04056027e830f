"""Replicator: restores the missing copies of a closed fragment.

    a member is lost, silent, or has bad copies
        the placement policy chooses another bookie, not a member of the fragment. Every entry of that place is read
        from the other members, checked, and written to it. Only then the metadata names it (compare-and-set)
    a member lists some of its entries, and not all: adds to it were abandoned
        the missing entries are written to it
    there is no other bookie, and the member answers
        missing or damaged entries are written to it again

An entry without any good copy is never left out: the fragment stays as it is. Copies are byte for byte the same. The
first case is as in the original (a bookie that lost entries is not trusted with them again). The second is ours: such a
bookie lost nothing, and the fragment need not be moved for its last entries. The third is ours too, for clusters
without a spare bookie, where the original retries without end.

Source: BookKeeper's LedgerFragmentReplicator, BookKeeperAdmin.replicateLedgerFragment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import trio

from autorecovery.copying.copy_reads import CopyReads
from autorecovery.copying.throttle import Throttle
from autorecovery.fragments import BadFragment, Fault, LedgerFragment, LostReason, batches
from autorecovery.ledger_checker import LedgerChecker
from quire.ledger.client import LedgerClient
from quire.ledger.errors import (
    BookieError,
    BookieUnavailableError,
    LedgerError,
    NotEnoughBookiesError,
)
from quire.ledger.reading.copies import COPY_BYTES, CopyFault, LedgerCopies
from quire.metadata.ledgers import LedgerMetadata
from quire.service.log import get_logger

log = get_logger(__name__)

ENTRIES_AT_ONCE = 1000
"""Largest number of entries of one ledger copied at once, unless rereplicationEntryBatchSize is greater."""
NEWCOMERS_TRIED = 3
"""Failed choices of newcomers after which a fragment is left for later."""
SIZE_GUESS = 4096
"""Assumed bytes per entry before any entry was read."""
ANSWERING: frozenset[Fault] = frozenset(
    (CopyFault.MISSING, CopyFault.DAMAGED, CopyFault.UNKNOWN, CopyFault.UNREADABLE, LostReason.INCOMPLETE)
)
"""Faults of members that answer: they can be repaired in place."""


@dataclass(slots=True)
class Copied:
    """Work done for one fragment, or several."""

    entries: int = 0
    """Copies written."""
    bytes: int = 0
    entries_read: int = 0
    bytes_read: int = 0
    moved: list[tuple[str, str]] = field(default_factory=list)
    """Members replaced: old, new."""
    mended: list[str] = field(default_factory=list)
    """Members that received copies in place."""

    def add(self, other: Copied) -> None:
        self.entries += other.entries
        self.bytes += other.bytes
        self.entries_read += other.entries_read
        self.bytes_read += other.bytes_read
        self.moved += other.moved
        self.mended += other.mended


class Replicator:
    """Replicator of one cluster. Calls for different ledgers may overlap."""

    def __init__(
        self,
        client: LedgerClient,
        checker: LedgerChecker,
        *,
        throttle: Throttle | None = None,
        batch_entries: int = ENTRIES_AT_ONCE,
    ) -> None:
        self._client = client
        self._checker = checker
        self._throttle = throttle or Throttle(0)
        self._batch_entries = batch_entries

    async def replicate(
        self,
        metadata: LedgerMetadata,
        bad: BadFragment,
        *,
        exclude: Collection[str] = (),
        ensemble: Sequence[str] | None = None,
    ) -> Copied:
        """Restore the missing copies of a closed fragment of a ledger with this metadata.

        `exclude`: bookies that receive no copies. `ensemble`: the members of the fragment, if that is decided already.

        Raises: NotEnoughBookiesError if some members could not be replaced (others may have been); LedgerReadError
        (NoSuchEntryError, NoCopyLeftError, DigestMismatchError) if an entry cannot be read; FragmentChangedError;
        NoSuchLedgerError; BookieError if copies cannot be written; MetadataError. Entries copied by then do no harm.
        """
        fragment = bad.fragment
        assert fragment.closed, f"{bad} is open"
        done = Copied()
        failed: set[str] = set(exclude)
        if ensemble is None and bad.lacking:
            bad = await self._fill(metadata, bad, failed, done)
            if not bad.faults:
                return done
        for attempt in range(1, NEWCOMERS_TRIED + 1):
            newcomers, left = self._choose(metadata, bad, failed, ensemble)
            try:
                await self._move(metadata, bad, newcomers, done)
                break
            except _NewcomerFailedError as failure:
                if attempt == NEWCOMERS_TRIED or ensemble is not None:
                    raise failure.cause from failure
                failed.add(failure.bookie_id)
        in_place = {index: fragment.bookies[index] for index in left if bad.faults[index] in ANSWERING}
        for index, bookie_id in in_place.items():
            await self._mend(metadata, bad, index, bookie_id, done)
        stuck = [fragment.bookies[index] for index in left if index not in in_place]
        if stuck:
            raise NotEnoughBookiesError(f"{bad}: no bookie is left to replace {', '.join(stuck)}")
        return done

    async def fill(self, metadata: LedgerMetadata, bad: BadFragment) -> Copied:
        """Write to members the entries that they lack (`bad.lacking`), whether the metadata names them or not.

        Raises the errors of `replicate`; BookieError if a member refuses them.
        """
        done = Copied()
        for index, entry_ids in bad.lacking.items():
            try:
                await self._copy(metadata, bad, {index: bad.fragment.bookies[index]}, entry_ids, done)
            except _NewcomerFailedError as failure:
                raise failure.cause from failure
        return done

    # --- choice of newcomers

    def _choose(
        self, metadata: LedgerMetadata, bad: BadFragment, exclude: Collection[str], ensemble: Sequence[str] | None
    ) -> tuple[dict[int, str], list[int]]:
        """Choose newcomers by index; also return the indices for which there are none.

        All are chosen at once if possible, else one after the other, lost members first.
        """
        fragment = bad.fragment
        if ensemble is not None:
            return {index: ensemble[index] for index in bad.faults}, []
        chosen_by = partial(
            self._client.placement.replace_bookie,
            len(fragment.bookies),
            metadata.write_quorum,
            metadata.ack_quorum,
            exclude=exclude,
            custom_metadata=metadata.custom_metadata,
        )
        indices = sorted(bad.faults, key=lambda index: (bad.faults[index] in ANSWERING, index))
        try:
            chosen = chosen_by(fragment.bookies, {index: fragment.bookies[index] for index in indices})
            return {index: chosen[index] for index in indices}, []
        except NotEnoughBookiesError:
            if len(indices) == 1:
                return {}, indices
        newcomers: dict[int, str] = {}
        present = fragment.bookies
        for index in indices:
            try:
                changed = chosen_by(present, {index: present[index]}, exclude={*exclude, *fragment.bookies})
            except NotEnoughBookiesError:
                continue
            newcomers[index] = changed[index]
            present = changed
        return newcomers, [index for index in indices if index not in newcomers]

    # --- copying

    async def _move(
        self, metadata: LedgerMetadata, bad: BadFragment, newcomers: Mapping[int, str], done: Copied
    ) -> None:
        """Copy everything of these places to the newcomers, and name them in the metadata."""
        if not newcomers:
            return
        fragment = bad.fragment
        entry_ids = fragment.entries_of_any(newcomers)
        await self._copy(metadata, bad, newcomers, entry_ids, done)
        members = {index: (fragment.bookies[index], new) for index, new in newcomers.items()}
        await self._client.replace_members(fragment.ledger_id, fragment.first, fragment.last, members)
        done.moved += members.values()
        log.info(
            "fragment replicated",
            ledger=fragment.ledger_id,
            first=fragment.first,
            last=fragment.last,
            moved=",".join([f"{old}->{new}" for old, new in members.values()]),
        )

    async def _fill(
        self, metadata: LedgerMetadata, bad: BadFragment, exclude: Collection[str], done: Copied
    ) -> BadFragment:
        """Write unlisted entries to members; return the fragment with the members that refuse them, and the others."""
        faults = dict(bad.faults)
        for index, entry_ids in bad.lacking.items():
            bookie_id = bad.fragment.bookies[index]
            if bookie_id in exclude:
                continue
            try:
                await self._copy(metadata, bad, {index: bookie_id}, entry_ids, done)
            except _NewcomerFailedError as failure:
                log.info("copies refused", ledger=bad.ledger_id, bookie=bookie_id, reason=str(failure))
                continue
            del faults[index]
            done.mended.append(bookie_id)
            log.info(
                "copies added that a bookie lacked",
                ledger=bad.ledger_id,
                first=bad.fragment.first,
                bookie=bookie_id,
                entries=len(entry_ids),
            )
        return replace(bad, faults=faults)

    async def _mend(self, metadata: LedgerMetadata, bad: BadFragment, index: int, bookie_id: str, done: Copied) -> None:
        """Write to the member the entries that it lacks."""
        copies = self._checker.copies(bad.ledger_id, metadata)
        mended = 0
        for entry_ids in batches(bad.fragment.entries_of(index), self._batch_entries):
            found = await copies.bad_copies(bookie_id, entry_ids, count_max=len(entry_ids))
            if any([each.fault not in ANSWERING for each in found]):
                raise BookieUnavailableError(f"{bad}: {found[-1].text}")
            if found:
                await self._copy(metadata, bad, {index: bookie_id}, [each.entry_id for each in found], done)
                mended += len(found)
        done.mended.append(bookie_id)
        log.info(
            "no other bookie available, copies restored in place",
            ledger=bad.ledger_id,
            first=bad.fragment.first,
            bookie=bookie_id,
            entries=mended,
        )

    async def _copy(
        self,
        metadata: LedgerMetadata,
        bad: BadFragment,
        targets: Mapping[int, str],
        entry_ids: Sequence[int],
        done: Copied,
    ) -> None:
        """Write these entries to the targets (bookie by index), each to those that should have it."""
        copies = self._checker.copies(bad.ledger_id, metadata)
        sources = self._sources(bad)
        guess = metadata.length // (metadata.last_entry_id + 1) if metadata.length else SIZE_GUESS
        at = 0
        while at < len(entry_ids):
            count = max(1, min(self._batch_entries, COPY_BYTES // max(guess, 1)))
            waiting = entry_ids[at : at + count]
            at += len(waiting)
            while waiting:
                found = await CopyReads(copies, bad.fragment, sources, COPY_BYTES).run(waiting)
                size = sum(map(len, found.values()))
                done.entries_read += len(found)
                done.bytes_read += size
                await self._throttle.take(size)
                await self._write(copies, bad.fragment, targets, found, done)
                guess = size // len(found)
                waiting = [each for each in waiting if each not in found] if len(found) < len(waiting) else ()

    async def _write(
        self,
        copies: LedgerCopies,
        fragment: LedgerFragment,
        targets: Mapping[int, str],
        found: Mapping[int, memoryview],
        done: Copied,
    ) -> None:
        errors: list[_NewcomerFailedError] = []

        async def to_one(bookie_id: str, entry_ids: Sequence[int]) -> None:
            entries = [found[each] for each in entry_ids]
            try:
                await copies.write(bookie_id, entry_ids, entries)
            except BookieError as error:
                errors.append(_NewcomerFailedError(bookie_id, error))
                return
            done.entries += len(entries)
            done.bytes += sum(map(len, entries))

        ordered = sorted(found)
        shares = [
            (bookie_id, [each for each in ordered if fragment.striping.stores(index, each)])
            for index, bookie_id in targets.items()
        ]
        if len(shares) == 1:
            await to_one(*shares[0])
        else:
            async with trio.open_nursery() as nursery:
                for bookie_id, share in shares:
                    if share:
                        nursery.start_soon(to_one, bookie_id, share, name=f"copies to {bookie_id}")
        if errors:
            raise errors[0]

    def _sources(self, bad: BadFragment) -> Callable[[int], list[int]]:
        """Return the indices of the members that should have each entry, by entry; the ones to ask first at the end."""
        fragment = bad.fragment
        rank = {
            index: 0 if fault is LostReason.MISPLACED else 1 if fault in ANSWERING else 2
            for index, fault in bad.faults.items()
        }
        known: dict[int, list[int]] = {}

        def order(entry_id: int) -> list[int]:
            # If every member has every entry, read all from one member, with few requests; another member for each
            # ledger.
            start = entry_id if fragment.striping.striped else fragment.ledger_id
            rotation = start % len(fragment.bookies)
            found = known.get(rotation)
            if found is None:
                write_set = fragment.striping.write_set(start)
                asked = self._client.placement.read_order(fragment.bookies, write_set, self._client.health)
                found = known[rotation] = sorted(asked, key=lambda index: rank.get(index, 0))[::-1]
            return found

        return order


class _NewcomerFailedError(LedgerError):
    """A bookie refused copies. Passing: choose another."""

    def __init__(self, bookie_id: str, cause: BookieError) -> None:
        super().__init__(str(cause))
        self.bookie_id = bookie_id
        self.cause = cause

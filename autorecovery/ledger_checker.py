"""LedgerChecker: checks that the members of a ledger's fragments have the entries they should have.

The first and the last entry of each member are read, and more of them if configured (`percentage`). Every copy is
checked against its digest, which the original does not do. Members that are not registered are not asked.

Where only a sample is read, bookies that are reported to lack entries are also asked for their lists. That finds a gap
between the first and the last entry without reading everything.

In the last fragment of an open ledger, entries may still be in transit to a member, so missing ones do not count.

Source: BookKeeper's LedgerChecker.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from autorecovery.entry_lists import ListEntries
from autorecovery.errors import ListOfEntriesError
from autorecovery.fragments import BadFragment, Fault, LedgerFragment, LostReason, fragments_of
from autorecovery.replicas import absent_entries
from quire.ledger.client import LedgerClient
from quire.ledger.reading.copies import BadCopy, CopyFault, LedgerCopies
from quire.metadata.ledgers import LedgerMetadata
from quire.wire.bookkeeper.entry import DigestType
from quire.world.doors import Rng
from quire.world.tasks import for_each

ASKED_AT_ONCE = 64
"""Largest number of members that one check asks at once, unless inFlightReadEntryNumInLedgerChecker is smaller."""


class LedgerChecker:
    """Checker of the ledgers of one cluster. Calls may overlap."""

    def __init__(
        self,
        client: LedgerClient,
        *,
        rng: Rng,
        password: bytes = b"",
        digest_type: DigestType = DigestType.CRC32,
        reads_max: int = -1,
        list_entries: ListEntries | None = None,
    ) -> None:
        """`password` and `digest_type`: for ledgers whose metadata has none.

        `reads_max`: members that one check asks at once; -1: only our own limit. `list_entries`: None if bookies are
        not asked for their lists.
        """
        self._client = client
        self._rng = rng
        self._password = password
        self._digest_type = digest_type
        self._list_entries = list_entries
        self._at_once = min(ASKED_AT_ONCE, reads_max) if reads_max > 0 else ASKED_AT_ONCE

    def registered(self) -> frozenset[str] | None:
        """Return the bookies that are registered, writable or read-only; None if unknown."""
        cluster = self._client.cluster
        return None if cluster is None else cluster.members | cluster.read_only

    def copies(self, ledger_id: int, metadata: LedgerMetadata) -> LedgerCopies:
        """Return a reader of a ledger's copies, opened by its metadata or the configured password."""
        return self._client.copies(ledger_id, metadata, password=self._password, digest_type=self._digest_type)

    async def check(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        *,
        percentage: int = 0,
        lac: int = -1,
        whole: Collection[str] = (),
        listed: Collection[str] = (),
    ) -> list[BadFragment]:
        """Return the fragments with members that lack copies they should have.

        `percentage` of the entries of each member are read, always with the first and the last; for bookies in `whole`,
        all of them. Bookies in `listed` are first asked for their lists. Members that are not registered are not asked.
        `lac`: how far a ledger that is not closed is confirmed; in its last fragment nothing beyond is read.
        """
        fragments = fragments_of(ledger_id, metadata, lac)
        registered = self.registered()
        copies = self.copies(ledger_id, metadata)
        found: list[dict[int, Fault]] = [{} for _ in fragments]
        examples: list[list[BadCopy]] = [[] for _ in fragments]
        asked: list[tuple[int, int, str, Sequence[int]]] = []
        for place, fragment in enumerate(fragments):
            for index, bookie_id in enumerate(fragment.bookies):
                if registered is not None and bookie_id not in registered:
                    found[place][index] = LostReason.LOST
                    continue
                share = 100 if bookie_id in whole else percentage
                entry_ids = fragment.sample_of(index, share, self._rng)
                if entry_ids:
                    asked.append((place, index, bookie_id, entry_ids))

        there = set(listed) if registered is None else registered.intersection(listed)
        lacking = await self._lacking(fragments, there)
        for place, index in lacking:
            found[place][index] = LostReason.INCOMPLETE
        asked = [each for each in asked if each[:2] not in lacking]

        async def ask(one: tuple[int, int, str, Sequence[int]]) -> None:
            place, index, bookie_id, entry_ids = one
            bad = await first_bad(copies, fragments[place], bookie_id, entry_ids)
            if bad is not None:
                found[place][index] = bad.fault
                examples[place].append(bad)

        await for_each(asked, ask, at_once=self._at_once, name=f"check of ledger {ledger_id}")
        return [
            BadFragment(
                fragment=fragment,
                faults=dict(sorted(faults.items())),
                lacking={index: entries for (at, index), entries in lacking.items() if at == place},
                examples=tuple(bad),
            )
            for place, (fragment, faults, bad) in enumerate(zip(fragments, found, examples, strict=True))
            if faults
        ]

    async def _lacking(
        self, fragments: Sequence[LedgerFragment], bookies: Collection[str]
    ) -> dict[tuple[int, int], Sequence[int]]:
        """Return, by place and index, the entries that members of closed fragments do not list, for those of `bookies`
        that list some.

        A member that lists nothing of a fragment, or has no list, is checked by reading.
        """
        if self._list_entries is None:
            return {}
        found: dict[tuple[int, int], Sequence[int]] = {}
        for bookie_id in sorted(bookies):
            places = [
                (place, fragment.bookies.index(bookie_id))
                for place, fragment in enumerate(fragments)
                if fragment.closed and bookie_id in fragment.bookies
            ]
            if not places:
                continue
            try:
                listed = await self._list_entries(bookie_id, fragments[0].ledger_id)
            except ListOfEntriesError:
                continue
            for place, index in places:
                absent = absent_entries(fragments[place], index, listed)
                if absent and len(absent) < len(fragments[place].entries_of(index)):
                    found[place, index] = absent
        return found


async def first_bad(
    copies: LedgerCopies, fragment: LedgerFragment, bookie_id: str, entry_ids: Sequence[int]
) -> BadCopy | None:
    """Return the first of these copies that makes the member a bad one, None if none does."""
    at = 0
    while at < len(entry_ids):
        entries, bad = await copies.read(bookie_id, entry_ids[at:])
        at += len(entries)
        if bad is not None and (fragment.closed or bad.fault is not CopyFault.MISSING):
            return bad
        at += bad is not None
    return None

"""CopyReads: some entries of a fragment, each from the first member that has a good copy of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from autorecovery.fragments import LedgerFragment
from quire.ledger.errors import DigestMismatchError, LedgerReadError, NoCopyLeftError, NoSuchEntryError
from quire.ledger.reading.copies import BadCopy, CopyFault, LedgerCopies


class CopyReads:
    """Some entries of a fragment, each from the first member that has a good copy."""

    def __init__(
        self, copies: LedgerCopies, fragment: LedgerFragment, sources: Callable[[int], list[int]], size_max: int
    ) -> None:
        self._copies = copies
        self._fragment = fragment
        self._sources = sources
        self._size_max = size_max
        self._size = 0
        self._found: dict[int, memoryview] = {}
        self._denied: dict[int, dict[int, BadCopy]] = {}
        """Answers of members without a good copy, by entry and index."""
        self._silent: dict[int, BadCopy] = {}
        """Members that do not answer, by index."""

    async def run(self, entry_ids: Sequence[int]) -> dict[int, memoryview]:
        """Return copies of some of the entries: at least one, and about `size_max` bytes at most.

        LedgerReadError if an entry has no good copy.
        """
        waiting: Sequence[int] = entry_ids
        while waiting and self._size < self._size_max:
            groups: dict[int, list[int]] = {}
            for entry_id in waiting:
                groups.setdefault(self._next_member(entry_id), []).append(entry_id)
            if len(groups) == 1:
                for index, share in groups.items():
                    await self._read(index, share)
            else:
                async with trio.open_nursery() as nursery:
                    for index, share in groups.items():
                        nursery.start_soon(self._read, index, share, name="read of copies")
            waiting = [each for each in waiting if each not in self._found]
        return self._found

    def _next_member(self, entry_id: int) -> int:
        """Return the index of the member to ask for the entry now. LedgerReadError if every member was asked."""
        order = self._sources(entry_id)
        denied = self._denied.get(entry_id, {})
        for index in reversed(order):
            if index not in denied and index not in self._silent:
                return index
        causes = [denied.get(index) or self._silent[index] for index in reversed(order)]
        raise unreadable(self._fragment.ledger_id, entry_id, causes)

    async def _read(self, index: int, entry_ids: Sequence[int]) -> None:
        at = 0
        while at < len(entry_ids) and self._size < self._size_max:
            entries, bad = await self._copies.read(
                self._fragment.bookies[index], entry_ids[at:], size_max=self._size_max
            )
            for entry_id, entry in zip(entry_ids[at:], entries, strict=False):
                self._found[entry_id] = entry
                self._size += len(entry)
            at += len(entries)
            if bad is None:
                continue
            if bad.fault is CopyFault.UNREACHABLE:
                self._silent[index] = bad
                return
            self._denied.setdefault(bad.entry_id, {})[index] = bad
            at += 1


def unreadable(ledger_id: int, entry_id: int, causes: Sequence[BadCopy]) -> LedgerReadError:
    """Return the error for an entry without a good copy: missing only if all members say so, without a copy left if all
    others have lost data; damage before temporary failures.
    """
    text = f"entry {ledger_id}:{entry_id} cannot be read: {'; '.join([each.text for each in causes])}"
    faults = {each.fault for each in causes}
    if faults <= {CopyFault.MISSING}:
        return NoSuchEntryError(text)
    if faults <= {CopyFault.MISSING, CopyFault.UNKNOWN}:
        return NoCopyLeftError(text)
    return DigestMismatchError(text) if CopyFault.DAMAGED in faults else LedgerReadError(text)

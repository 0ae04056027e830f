"""The other bookies, as the check of the data and the scrubber use them. A bookie does not know its client, so whoever
puts the process together provides this (autorecovery/copying/peer_copies.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from bookie.errors import BookieError
from quire.metadata.ledger_metadata import LedgerMetadata


class PeerError(BookieError):
    """The other members of a ledger cannot help now. Passing: try again later."""

    passing = True


class EntryLostError(BookieError):
    """No other member that should have an entry has it: they deny it, lost it, or there are none.

    Final, unless a lost bookie or disk returns.
    """


class OtherCopies(Protocol):
    """Other bookies of the cluster."""

    async def close_ledger(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """Fence and close a ledger that is not closed. PeerError, MetadataError; no effect if it is deleted."""

    async def read(
        self, ledger_id: int, metadata: LedgerMetadata, entry_ids: Sequence[int]
    ) -> Mapping[int, memoryview]:
        """Return good copies of some of these entries, at least one. Each was checked against its digest.

        `entry_ids`: ascending, of one fragment. PeerError, EntryLostError.
        """


OpenCopies: TypeAlias = Callable[[], AbstractAsyncContextManager[OtherCopies]]
"""Opens them when they are needed. MetadataError, PeerError."""

"""Index of ledgers by bookie, built from the metadata of all ledgers, once for each audit.

Source: BookKeeper's BookieLedgerIndexer.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Collection
from typing import Protocol

from quire.ledger.errors import NoSuchLedgerError
from quire.metadata.errors import MalformedMetadataError, UnsupportedLayoutError
from quire.metadata.ledgers import LedgerMetadata
from quire.service.log import get_logger
from quire.world.tasks import for_each

log = get_logger(__name__)


class LedgerListing(Protocol):
    """The part of a ledger client that the auditor uses."""

    def list_ledgers(self, first: int = 0) -> AsyncIterator[int]:
        """Return every ledger id from `first` on, ascending. MetadataError."""

    async def read_metadata(self, ledger_id: int) -> LedgerMetadata:
        """Read the metadata of a ledger. NoSuchLedgerError, MetadataError."""


class BookieIndex:
    """Index of ledgers by bookie. Eight bytes for each place of a bookie in a ledger."""

    def __init__(self) -> None:
        self._ledgers: dict[str, array[int]] = {}
        self._bytes: dict[str, int] = {}
        self.ledgers = 0
        """Number of ledgers added."""

    @property
    def bookies(self) -> Collection[str]:
        """Return the bookies that any ledger names."""
        return self._ledgers.keys()

    def add(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        self.ledgers += 1
        for bookie_id in {bookie_id for fragment in metadata.fragments for bookie_id in fragment.bookies}:
            self._ledgers.setdefault(bookie_id, array("q")).append(ledger_id)
            self._bytes[bookie_id] = self._bytes.get(bookie_id, 0) + metadata.length

    def count(self, bookie_id: str) -> int:
        """Return the number of ledgers that name the bookie."""
        return len(self._ledgers.get(bookie_id, ()))

    def bytes_of(self, bookie_id: str) -> int:
        """Return the payload bytes of the closed ledgers that name the bookie."""
        return self._bytes.get(bookie_id, 0)

    def of(self, lost: Collection[str]) -> dict[int, tuple[str, ...]]:
        """Yield the ledgers that name any of `lost`, by ascending id, with the lost bookies that each names."""
        found: dict[int, tuple[str, ...]] = {}
        for bookie_id in sorted(lost):
            for ledger_id in self._ledgers.get(bookie_id, ()):
                found[ledger_id] = (*found.get(ledger_id, ()), bookie_id)
        return dict(sorted(found.items()))


async def all_ids(ledgers: LedgerListing) -> array[int]:
    """Return every ledger id, ascending; eight bytes each."""
    found = array("q")
    async for ledger_id in ledgers.list_ledgers():
        found.append(ledger_id)
    return found


async def read_or_none(ledgers: LedgerListing, ledger_id: int) -> LedgerMetadata | None:
    """Read the metadata of a ledger; None if the ledger is gone, or if its metadata cannot be read, which is logged.

    MetadataError.
    """
    try:
        return await ledgers.read_metadata(ledger_id)
    except NoSuchLedgerError:
        return None
    except (MalformedMetadataError, UnsupportedLayoutError) as error:
        log.warning(
            "cannot read the metadata of a ledger, skipping its copies",
            ledger=ledger_id,
            reason=str(error),
        )
        return None


async def read_index(ledgers: LedgerListing, *, at_once: int) -> BookieIndex:
    """Read the metadata of all ledgers, `at_once` at a time. MetadataError."""
    index = BookieIndex()

    async def add(ledger_id: int) -> None:
        metadata = await read_or_none(ledgers, ledger_id)
        if metadata is not None:
            index.add(ledger_id, metadata)

    await for_each(await all_ids(ledgers), add, at_once=at_once, name="index of bookies")
    return index

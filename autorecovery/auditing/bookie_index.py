"""Which ledgers each bookie is to have copies of: made from the metadata of all ledgers, once for each audit.

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


class Ledgers(Protocol):
    """What the auditor asks of a ledger client."""

    def list_ledgers(self, first: int = 0) -> AsyncIterator[int]:
        """Every ledger id from `first` on, growing. MetadataError."""

    async def read_metadata(self, ledger_id: int) -> LedgerMetadata:
        """NoSuchLedgerError, MetadataError."""


class BookieIndex:
    """Ledgers by bookie. Eight bytes for each place of a bookie in a ledger."""

    def __init__(self) -> None:
        self._ledgers: dict[str, array[int]] = {}
        self._bytes: dict[str, int] = {}
        self.ledgers = 0
        """How many were added."""

    @property
    def bookies(self) -> Collection[str]:
        """Those that any ledger names."""
        return self._ledgers.keys()

    def add(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        self.ledgers += 1
        for bookie_id in {bookie_id for fragment in metadata.fragments for bookie_id in fragment.bookies}:
            self._ledgers.setdefault(bookie_id, array("q")).append(ledger_id)
            self._bytes[bookie_id] = self._bytes.get(bookie_id, 0) + metadata.length

    def count(self, bookie_id: str) -> int:
        """Ledgers that name the bookie."""
        return len(self._ledgers.get(bookie_id, ()))

    def bytes_of(self, bookie_id: str) -> int:
        """Payload bytes of the closed ones among them."""
        return self._bytes.get(bookie_id, 0)

    def of(self, lost: Collection[str]) -> dict[int, tuple[str, ...]]:
        """The ledgers that name any of `lost`, by growing id, and whom of them."""
        found: dict[int, tuple[str, ...]] = {}
        for bookie_id in sorted(lost):
            for ledger_id in self._ledgers.get(bookie_id, ()):
                found[ledger_id] = (*found.get(ledger_id, ()), bookie_id)
        return dict(sorted(found.items()))


async def all_ids(ledgers: Ledgers) -> array[int]:
    """Every ledger there is, growing; eight bytes each."""
    found = array("q")
    async for ledger_id in ledgers.list_ledgers():
        found.append(ledger_id)
    return found


async def read_or_none(ledgers: Ledgers, ledger_id: int) -> LedgerMetadata | None:
    """None if the ledger is gone, or if its metadata cannot be read, which is told. MetadataError."""
    try:
        return await ledgers.read_metadata(ledger_id)
    except NoSuchLedgerError:
        return None
    except (MalformedMetadataError, UnsupportedLayoutError) as error:
        log.warning(
            "the metadata of a ledger cannot be read, its copies are not looked after",
            ledger_id=ledger_id,
            error=str(error),
        )
        return None


async def read_index(ledgers: Ledgers, *, at_once: int) -> BookieIndex:
    """Read the metadata of all ledgers, `at_once` at a time. MetadataError."""
    index = BookieIndex()

    async def add(ledger_id: int) -> None:
        metadata = await read_or_none(ledgers, ledger_id)
        if metadata is not None:
            index.add(ledger_id, metadata)

    await for_each(await all_ids(ledgers), add, at_once=at_once, name="index of bookies")
    return index

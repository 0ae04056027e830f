"""PeerCopies: the other members of a bookie's ledgers, for a bookie that copies back what it lost or what is damaged.

Implements `bookie.integrity.peers.OtherCopies` without importing it: the process that has both joins them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autorecovery.copying.copy_reads import CopyReads
from autorecovery.fragments import LedgerFragment, fragments_of
from quire.ledger.client import LedgerClient
from quire.ledger.errors import NoSuchLedgerError
from quire.ledger.reading.copies import COPY_BYTES
from quire.metadata.ledgers import LedgerMetadata
from quire.wire.bookkeeper.entry import DigestType


class PeerCopies:
    """Other members of the ledgers of bookie `bookie_id`. `password`, `digest_type`: for metadata without them."""

    def __init__(self, client: LedgerClient, bookie_id: str, password: bytes, digest_type: DigestType) -> None:
        self._client = client
        self._bookie_id = bookie_id
        self._password = password
        self._digest_type = digest_type

    async def close_ledger(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """Fence and close a ledger; no effect if it is deleted. LedgerError, MetadataError."""
        try:
            reader = await self._client.open(
                ledger_id,
                password=metadata.password_or(self._password),
                recover=True,
                digest_type=self._digest_type,
            )
        except NoSuchLedgerError:
            return
        reader.close()

    async def read(
        self, ledger_id: int, metadata: LedgerMetadata, entry_ids: Sequence[int]
    ) -> Mapping[int, memoryview]:
        """Return good copies of some of these entries of one fragment, at least one.

        LedgerReadError; NoSuchEntryError if all other members deny an entry, or there are none; NoCopyLeftError if they
        deny it or have lost it.
        """
        fragment = next(each for each in reversed(fragments_of(ledger_id, metadata)) if each.first <= entry_ids[0])
        copies = self._client.copies(ledger_id, metadata, password=self._password, digest_type=self._digest_type)

        def sources(entry_id: int) -> list[int]:
            return self._sources(fragment, entry_id)

        return await CopyReads(copies, fragment, sources, COPY_BYTES).run(entry_ids)

    def _sources(self, fragment: LedgerFragment, entry_id: int) -> list[int]:
        """Return the other members that should have the entry, the one to ask first at the end."""
        start = entry_id if fragment.striping.striped else fragment.ledger_id
        order = self._client.placement.read_order(
            fragment.bookies, fragment.striping.write_set(start % len(fragment.bookies)), self._client.health
        )
        return [index for index in order if fragment.bookies[index] != self._bookie_id][::-1]

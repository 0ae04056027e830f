"""LedgerRepairs: access to single copies of ledgers, and changes of the members of closed ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from quire.ledger import metadata_updates
from quire.ledger.context import LedgerContext
from quire.ledger.reading.copies import LedgerCopies
from quire.metadata.ledgers import LedgerMetadata
from quire.wire.bookkeeper.entry import DigestType, digest_of, master_key


class LedgerRepairs:
    """Part of `LedgerClient` for checks, repair and moves."""

    _context: LedgerContext

    def copies(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        *,
        password: bytes = b"",
        digest_type: DigestType = DigestType.CRC32C,
    ) -> LedgerCopies:
        """Give access to the copies of a ledger on single bookies, for checks and repair.

        Args:
            ledger_id: Id of the ledger.
            metadata: Metadata of the ledger.
            password: Used if the metadata has no password.
            digest_type: Used if the metadata has no password.

        Returns:
            Reads and writes of single copies.
        """
        if metadata.password_known:
            password, digest_type = metadata.password, metadata.digest_type
        return LedgerCopies(self._context, ledger_id, digest_of(digest_type, password), master_key(password))

    async def replace_members(
        self, ledger_id: int, first: int, last: int, members: Mapping[int, tuple[str, str]]
    ) -> LedgerMetadata:
        """Replace members of a closed fragment in the metadata. Call it after the copies were written.

        Args:
            ledger_id: Id of the ledger.
            first: First entry of the fragment.
            last: Last entry of the fragment, inclusive.
            members: Old and new bookie by index. The new one must have every entry of that index on its disk.

        Returns:
            The metadata as stored afterwards.

        Raises:
            FragmentChangedError: The fragment has other entries or members by now.
            NoSuchLedgerError: The ledger is deleted.
            MetadataError: The metadata service failed.
        """
        rule = partial(metadata_updates.replace_members, first=first, last=last, members=members)
        return (await metadata_updates.update(self._context, ledger_id, rule)).value

    async def add_members(
        self, ledger_id: int, known: LedgerMetadata, ensembles: Mapping[int, tuple[str, ...]], *, ack_quorum: int
    ) -> LedgerMetadata:
        """Add members to all fragments of a closed ledger that is not striped. Call it after the copies were written.

        Args:
            ledger_id: Id of the ledger.
            known: Metadata by which the entries were copied.
            ensembles: Members by first entry of the fragment, the present ones first; as many for each fragment.
            ack_quorum: Ack quorum that the ledger then has; 1 to the number of members.

        Returns:
            The metadata as stored afterwards; ensemble and write quorum are the number of members.

        Raises:
            FragmentChangedError: The ledger has other members by now.
            NoSuchLedgerError: The ledger is deleted.
            MetadataError: The metadata service failed.
        """
        rule = partial(metadata_updates.add_members, known=known, ensembles=ensembles, ack_quorum=ack_quorum)
        return (await metadata_updates.update(self._context, ledger_id, rule)).value

"""LedgerWriter: the only writer of a ledger, until it is closed or fenced, or runs out of bookies."""

from __future__ import annotations

from collections.abc import Sequence

from quire.ledger.writing.open_ledger import OpenLedger
from quire.wire.bookkeeper.entry import Buffer


class LedgerWriter(OpenLedger):
    """Writer of one ledger from its creation on. Entries get the ids 0, 1, 2, ... in the order of appending."""

    __slots__ = ()

    def append(self, payloads: Sequence[Buffer]) -> int:
        """Send a run of entries; never waits.

        Args:
            payloads: Payloads of the entries. Those up to `v2.JOIN_MAX` bytes are copied; bigger ones must not change
                until confirmed.

        Returns:
            The id of the first entry.

        Raises:
            EntryTooLargeError: A payload is too large; none of the run was sent, and the writer continues.
            TooManyPendingError: Too many bytes are unconfirmed; the writer continues.
            LedgerFencedError: Another client has taken the ledger over.
            LedgerClosedError: The writer is closed.
            LedgerError: Another failure has ended the writer.
        """
        appender = self._appender
        if appender.pending_bytes > self._pending_max:
            self._refuse()
        return appender.append(payloads)

    async def write(self, payload: Buffer) -> int:
        """Append one entry when there is room for it, and wait until it is confirmed.

        Args:
            payload: Payload of the entry.

        Returns:
            The id of the entry.

        Raises:
            LedgerError: As `append`; or the writer ended before the entry was confirmed.
        """
        if self._appender.pending_bytes > self._pending_max:
            await self.wait_room()
        entry_id = self._appender.append([payload])
        await self.wait_confirmed(entry_id)
        return entry_id

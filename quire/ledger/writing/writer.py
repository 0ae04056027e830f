"""LedgerWriter: the only one who appends to a ledger, until it is closed, fenced, or runs out of bookies."""

from __future__ import annotations

from collections.abc import Sequence

from quire.ledger.writing.open_ledger import OpenLedger
from quire.wire.bookkeeper.entry import Buffer


class LedgerWriter(OpenLedger):
    """Writes one ledger from its creation on; entries get the ids 0, 1, 2, ... in the order in which they are appended."""

    __slots__ = ()

    def append(self, payloads: Sequence[Buffer]) -> int:
        """Send a run of entries and return the id of the first; never waits.

        Payloads up to `v2.JOIN_MAX` bytes are copied; bigger ones must not change until confirmed. LedgerFencedError,
        LedgerClosedError, or what else ended the writer; EntryTooLargeError and TooManyPendingError, after which it goes on.
        """
        appender = self._appender
        if appender.pending_bytes > self._pending_max:
            self._refuse()
        return appender.append(payloads)

    async def write(self, payload: Buffer) -> int:
        """Append one entry, when there is room for it, and wait until it is confirmed; returns its id."""
        if self._appender.pending_bytes > self._pending_max:
            await self.wait_room()
        entry_id = self._appender.append([payload])
        await self.wait_confirmed(entry_id)
        return entry_id

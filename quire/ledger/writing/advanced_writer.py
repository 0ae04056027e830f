"""AdvancedLedgerWriter: writes a ledger whose entry ids the application gives, in any order."""

from __future__ import annotations

from collections.abc import Sequence

from quire.ledger.context import LedgerContext
from quire.ledger.errors import DuplicateEntryError, IncorrectParameterError
from quire.ledger.striping import Striping
from quire.ledger.writing.ack_tracker import AckTracker
from quire.ledger.writing.adv_ack_tracker import AdvAckTracker
from quire.ledger.writing.writer import OpenLedger
from quire.metadata.ledgers import LedgerMetadata
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Buffer


class AdvancedLedgerWriter(OpenLedger):
    """Writes one ledger from its creation on; the application gives the entry ids, in any order.

    Entries are confirmed in the order of their ids: a gap holds up every entry behind it, and the ledger ends before it
    when it is closed or recovered. The length in an entry counts the entries sent before it, whatever their ids.

    Source: BookKeeper's LedgerHandleAdv.
    """

    def __init__(
        self, context: LedgerContext, ledger_id: int, metadata: LedgerMetadata, *, deferred_sync: bool = False
    ) -> None:
        super().__init__(context, ledger_id, metadata, deferred_sync=deferred_sync, tracker=self._make_tracker)

    def append(self, first: int, payloads: Sequence[Buffer]) -> None:
        """Send a run of entries; never waits.

        Args:
            first: Id of the first entry; the others follow it without a gap.
            payloads: Payloads of the entries, as for `LedgerWriter.append`.

        Raises:
            DuplicateEntryError: An entry was sent before. None of the run was sent, and the writer continues.
            IncorrectParameterError: The run is empty, or an id is out of range; likewise.
            EntryTooLargeError: A payload is too large; likewise.
            TooManyPendingError: Too many bytes are unconfirmed; likewise. The run after the last confirmed entry is
                always taken, as the others may wait for it.
            LedgerFencedError: Another client has taken the ledger over.
            LedgerClosedError: The writer is closed.
            LedgerError: Another failure has ended the writer.
        """
        if first < 0 or not payloads:
            raise IncorrectParameterError(f"entry {first} and {len(payloads)} payloads are no run of entries")
        last = first + len(payloads) - 1
        if last > v2.ID_MAX:
            raise IncorrectParameterError(f"entry {last}: {v2.ID_MAX} is the highest entry id")
        if not self._adv_tracker.is_new(first, last):
            raise DuplicateEntryError(f"entries {first}..{last} of ledger {self.ledger_id}: one was sent before")
        if self._is_full(first):
            self._refuse()
        self._appender.append(payloads, first)

    async def write(self, entry_id: int, payload: Buffer) -> None:
        """Append one entry when there is room for it, and wait until it and every entry before it is confirmed.

        Args:
            entry_id: Id of the entry.
            payload: Payload of the entry.

        Raises:
            LedgerError: As `append`; or the writer ended before the entry was confirmed.
        """
        while self.error is None and self._is_full(entry_id):
            await self.wait_confirmed(self.last_confirmed + 1)
        self.append(entry_id, [payload])
        await self.wait_confirmed(entry_id)

    def _is_full(self, first: int) -> bool:
        return self._appender.pending_bytes > self._pending_max and first > self._appender.confirmed + 1

    def _make_tracker(self, striping: Striping, ack_quorum: int) -> AckTracker:
        self._adv_tracker = AdvAckTracker(striping, ack_quorum)
        return self._adv_tracker

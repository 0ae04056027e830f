"""The ledger that a log leaves: closed by its writer, or by another process that found it open and recovered it.

Auto recovery closes open ledgers of which a bookie was lost, and an operator may do the same. To the writer this looks
like a takeover: it is fenced. The list distinguishes them: if it has changed, another broker has the log; if not, the
ledger was only closed, and recovery finds its end. Entries up to there are stored, confirmed to the writer or not; the
rest goes into the next ledger. Source: Pulsar's ManagedLedgerImpl.addEntryFailedDueToConcurrentlyModified.

What holds: AllAckedEntriesAreReadable (an end below what was confirmed is damage, and is reported); no sink is notified
before the list was read again.
"""

from __future__ import annotations

from cursors.doors import Writer
from cursors.topic_log import topic_log
from managed_ledger.errors import ManagedLedgerFencedError
from managed_ledger.ledger_list import LedgerList
from managed_ledger.stored_list import StoredList
from quire.ledger.errors import LedgerConflictError, LedgerFencedError, NoSuchLedgerError
from quire.service.log import get_logger

log = get_logger(__name__)


class Predecessor:
    """The ledger being replaced, until its end is stored in the ledger list."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.contested = False
        """True if another process fenced it, or closed it at another entry."""
        self._end: tuple[int, int] | None = None
        """Last entry and bytes, as found by recovery."""

    @property
    def last_entry_id(self) -> int:
        """Return the last entry known to be stored permanently."""
        return self.writer.last_confirmed if self._end is None else self._end[0]

    async def close(self, stored: StoredList) -> None:
        """Close it, or find out where it was closed; final on return.

        Raises ManagedLedgerFencedError: another broker has the log; LedgerError, MetadataError: retry."""
        writer = self.writer
        if not self.contested:
            try:
                await writer.close()
                return
            except (LedgerFencedError, LedgerConflictError):
                self.contested = True
        if self._end is not None:
            return
        async with stored.held():
            await stored.check()
        try:
            reader = await stored.recover(writer.ledger_id)
        except NoSuchLedgerError as error:
            raise ManagedLedgerFencedError(
                f"ledger {writer.ledger_id} was deleted while it was being written"
            ) from error
        last = reader.last_entry_id
        if last < writer.last_confirmed:
            topic_log(log, stored.name).error(
                "ledger closed below its last confirmed entry",
                ledger=writer.ledger_id,
                closed_at=last,
                confirmed=writer.last_confirmed,
            )
            raise ManagedLedgerFencedError(f"ledger {writer.ledger_id} was closed at {last}, below what was confirmed")
        topic_log(log, stored.name).warning(
            "ledger closed by another process, log still owned",
            ledger=writer.ledger_id,
            last_entry_id=last,
            confirmed=writer.last_confirmed,
        )
        self._end = last, reader.length

    def marked_in(self, value: LedgerList, now_ms: int) -> LedgerList:
        """Return the list with its end, if it is the last one there; the unchanged list of a log that has left it
        already."""
        ledger_id = self.writer.ledger_id
        if not value.ledgers or value.ledgers[-1].ledger_id != ledger_id:
            return value
        last, size = self._end or (self.writer.last_confirmed, self._confirmed_bytes())
        return value.closed(ledger_id, entries=last + 1, size=size, now_ms=now_ms)

    def _confirmed_bytes(self) -> int:
        writer = self.writer
        first, last = writer.last_confirmed + 1, writer.last_pushed
        return writer.length - (sum(map(len, writer.sealed(first, last))) if first <= last else 0)

"""The ledger that a log leaves: closed by us, or by somebody who found it open and recovered it.

Auto recovery closes open ledgers of which a bookie was lost, and an operator may do the same. To the writer this looks like a
takeover: it is fenced. The list tells them apart: changed, the log is another broker's; as we stored it, the ledger was
only closed, and recovery tells where. What it has up to there is stored, however little of it we heard; the rest goes on
in the next ledger. Source: Pulsar's ManagedLedgerImpl.addEntryFailedDueToConcurrentlyModified.

What holds: AllAckedEntriesAreReadable (an end below what was confirmed is damage, and said so); nobody is told anything before
the list was read again.
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
    """Until its end is in the list."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.contested = False
        """Somebody fenced it, or closed it elsewhere than we would."""
        self._end: tuple[int, int] | None = None
        """Last entry and bytes, as recovery told."""

    @property
    def last_entry_id(self) -> int:
        """The last entry that is stored for good, as far as we know."""
        return self.writer.last_confirmed if self._end is None else self._end[0]

    async def close(self, stored: StoredList) -> None:
        """Close it, or learn where it was closed; final on return. ManagedLedgerFencedError: the log is another's. LedgerError,
        MetadataError: try again."""
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
            raise ManagedLedgerFencedError(f"ledger {writer.ledger_id} was deleted while it was written") from error
        last = reader.last_entry_id
        if last < writer.last_confirmed:
            topic_log(log, stored.name).error(
                "a ledger was closed below what its bookies had confirmed",
                ledger=writer.ledger_id,
                closed_at=last,
                confirmed=writer.last_confirmed,
            )
            raise ManagedLedgerFencedError(f"ledger {writer.ledger_id} was closed at {last}, below what was confirmed")
        topic_log(log, stored.name).warning(
            "a ledger was closed by others, and the log is ours",
            ledger=writer.ledger_id,
            last_entry_id=last,
            confirmed=writer.last_confirmed,
        )
        self._end = last, reader.length

    def marked_in(self, value: LedgerList, now_ms: int) -> LedgerList:
        """The list with its end, if it is the last there; of a log that left it already, the list as it is."""
        ledger_id = self.writer.ledger_id
        if not value.ledgers or value.ledgers[-1].ledger_id != ledger_id:
            return value
        last, size = self._end or (self.writer.last_confirmed, self._confirmed_bytes())
        return value.closed(ledger_id, entries=last + 1, size=size, now_ms=now_ms)

    def _confirmed_bytes(self) -> int:
        writer = self.writer
        first, last = writer.last_confirmed + 1, writer.last_pushed
        return writer.length - (sum(map(len, writer.sealed(first, last))) if first <= last else 0)

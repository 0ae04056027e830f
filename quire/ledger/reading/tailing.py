"""Following a ledger that is still being written: its metadata by a watch, its last add confirmed by long polls.

A bookie learns the LAC from the entries that follow, or from an explicit LAC. So a reader is one entry behind a writer
that pauses without sending an explicit LAC. The last entry becomes known when the ledger is closed.

Source: BookKeeper's ReadOnlyLedgerHandle (metadata listener), ReadLastConfirmedAndEntryOp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import trio

from quire.ledger.bookies.pool import Answer, Body, BookieConnection
from quire.ledger.context import LedgerContext
from quire.ledger.errors import BookieUnavailableError, LedgerError, NoSuchLedgerError
from quire.ledger.reading.entry_reads import EntryReads, open_entries
from quire.ledger.reading.racing import Ask, Race
from quire.ledger.reading.speculation import fixed_wait_s
from quire.metadata.errors import MetadataError, MetadataUnavailableError
from quire.metadata.ledgers import LedgerMetadata, LedgerState
from quire.metadata.store import Versioned
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import read_header
from quire.wire.bookkeeper.v2 import Rc

METADATA_RETRY_S = 1.0
"""Seconds between attempts to read the metadata while the store cannot be reached."""


class LacAndEntry(NamedTuple):
    """Result of a wait for an entry."""

    last_entry_id: int
    """Last entry that may be read, -1 for none."""
    entry: memoryview | None
    """Payload of the entry waited for, if a bookie sent it along."""


class MetadataWatch:
    """Watch of a ledger's metadata until the ledger is closed. It is one task, begun by `start`."""

    def __init__(
        self, context: LedgerContext, ledger_id: int, tell: Callable[[Versioned[LedgerMetadata]], None]
    ) -> None:
        """`tell` is called with the stored metadata: at the start, and after each change."""
        self.error: MetadataError | LedgerError | None = None
        """Error that ended the watch, if any."""
        self.on_error: Callable[[], None] = lambda: None
        self._context = context
        self._ledger_id = ledger_id
        self._tell = tell
        self._scope = trio.CancelScope()

    def start(self) -> None:
        self._context.start(self._run, f"ledger {self._ledger_id} watch")

    def close(self) -> None:
        """Stop reporting."""
        self._scope.cancel()

    async def _run(self) -> None:
        with self._scope:
            try:
                await self._follow()
            except (MetadataError, LedgerError) as error:
                self.error = error
                self.on_error()

    async def _follow(self) -> None:
        ledgers = self._context.ledgers
        watch = ledgers.watch(self._ledger_id)
        try:
            while True:
                try:
                    stored = await ledgers.read(self._ledger_id)
                except MetadataUnavailableError:
                    await trio.sleep(METADATA_RETRY_S)
                    continue
                if stored is None:
                    raise NoSuchLedgerError(f"ledger {self._ledger_id} was deleted")
                self._tell(stored)
                if stored.value.state is LedgerState.CLOSED:
                    return
                await watch.next()
        finally:
            watch.close()


class LongPollRace(Race):
    """Long poll: asks bookies to answer when the LAC exceeds `previous`.

    Enough bookies are asked at once that one of them stores the next entry, whichever it is (one, if all store every
    entry), and after a while others too. The only item is the next entry, which a bookie sends along if it has it.
    """

    timed = False

    def __init__(self, reads: EntryReads, bookies: Sequence[str], previous: int, timeout_s: float) -> None:
        super().__init__(reads.context, bookies, (previous + 1,))
        self.lac = -1
        """Greatest LAC received."""
        self.entry: memoryview | None = None
        """Payload of entry previous + 1, if it arrived."""
        self._reads = reads
        self._previous = previous
        self._timeout_ms = max(1, round(timeout_s * 1000))
        self._more_at_once = reads.striping.ensemble_size - reads.striping.write_quorum

    def order(self, item: int) -> list[int]:
        return self._reads.order.of_all(self._bookies, item)[::-1]

    def send(self, connection: BookieConnection, items: list[int]) -> list[Answer]:
        return [connection.long_poll(self._reads.ledger_id, self._previous, self._timeout_ms)]

    def take(self, item: int, ask: Ask, body: Body) -> bool:
        if not isinstance(body, v2.ReadResponse) or body.rc != Rc.OK:
            return False
        if body.max_lac is not None:
            self.lac = max(self.lac, body.max_lac)
        if body.entry and self.lac >= item:
            opened = open_entries(self._reads.digest, self._reads.ledger_id, item, (body.entry,))
            if opened:
                self.entry = opened[0]
                self.lac = max(self.lac, read_header(body.entry).lac)
        return True

    def failed(self, item: int, bookie_id: str, error: BookieUnavailableError) -> None:
        """Ask the next bookie; the failure is already in the health records."""

    def wait_s(self, next_bookie: str, doubled: int) -> float:
        if doubled < self._more_at_once:
            return 0.0
        config = self._context.config.reads
        late = doubled - self._more_at_once
        return fixed_wait_s(config.lac_first_s, config.lac_max_s, config.speculative_factor, late)

    def done(self) -> bool:
        return False

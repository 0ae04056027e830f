"""LedgerWriter: the only one who appends to a ledger, until it is closed, fenced, or runs out of bookies.

Appending is synchronous and goes by run; only a change of the ensemble and the close wait for the metadata store.

Source: BookKeeper's LedgerHandle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import trio

from quire.ledger import metadata_updates
from quire.ledger.appender import Appender, ignore_confirmed, ignore_failed
from quire.ledger.context import LedgerContext
from quire.ledger.errors import LedgerClosedError, LedgerError, LedgerFencedError, LedgerWriteError
from quire.ledger.pending import Sealer
from quire.ledger.placement import replace_bookies
from quire.ledger.reader import EntryReads, read_range
from quire.ledger.striping import Striping
from quire.metadata.errors import MetadataError
from quire.metadata.ledgers import LedgerMetadata
from quire.service.log import get_logger
from quire.wire.bookkeeper.entry import Buffer, Digest, master_key

log = get_logger(__name__)


class LedgerWriter:
    """Writes one ledger from its creation on.

    `on_confirmed(first, last)` is called in entry order, with ranges inclusive, when ack-quorum bookies have the entries
    on disk; `on_failed(error)` at most once, when nothing more will be confirmed. Neither is called from within
    `append`; neither may raise. Set both before the first append.
    """

    def __init__(self, context: LedgerContext, ledger_id: int, metadata: LedgerMetadata) -> None:
        self.ledger_id = ledger_id
        self.metadata = metadata
        """As this writer last stored or read it."""
        self._context = context
        striping = Striping(metadata.ensemble_size, metadata.write_quorum)
        digest = Digest(metadata.digest_type, metadata.password)
        sealer = Sealer(ledger_id, digest, master_key(metadata.password), striping)
        ensemble = metadata.fragments[-1].bookies
        self._appender = Appender(context, ledger_id, ensemble, striping, metadata.ack_quorum, sealer)
        self._appender.on_bookies_failed = self._bookies_failed
        self._reads = EntryReads(context, ledger_id, digest, striping)
        self._changing = False
        self._failed_at: dict[str, float] = {}
        self._closing = trio.Lock()
        self._closed = False

    @property
    def on_confirmed(self) -> Callable[[int, int], None]:
        return self._appender.on_confirmed

    @on_confirmed.setter
    def on_confirmed(self, function: Callable[[int, int], None]) -> None:
        self._appender.on_confirmed = function

    @property
    def on_failed(self) -> Callable[[LedgerError], None]:
        return self._appender.on_failed

    @on_failed.setter
    def on_failed(self, function: Callable[[LedgerError], None]) -> None:
        self._appender.on_failed = function

    @property
    def last_pushed(self) -> int:
        """Last entry appended (LAP), -1 for none."""
        return self._appender.last_pushed

    @property
    def last_confirmed(self) -> int:
        """Last entry reported by `on_confirmed` (LAC), -1 for none."""
        return self._appender.last_confirmed

    @property
    def length(self) -> int:
        """Payload bytes up to the last entry appended."""
        return self._appender.length

    @property
    def pending_bytes(self) -> int:
        """Bytes kept for entries that are not confirmed, frame heads included."""
        return self._appender.pending_bytes

    @property
    def error(self) -> LedgerError | None:
        """Why nothing more can be appended, if so."""
        return self._appender.error

    def append(self, payloads: Sequence[Buffer]) -> int:
        """Send a run of entries and return the id of the first; never waits.

        Payloads up to `v2.JOIN_MAX` bytes are copied; bigger ones must not change until confirmed. LedgerFencedError,
        LedgerClosedError, or what else ended the writer; EntryTooLargeError, after which it goes on.
        """
        return self._appender.append(payloads)

    def sealed(self, first: int, last: int) -> list[memoryview]:
        """Views of the payloads of entries `first` to `last` (inclusive) as far as they are not confirmed, or being
        reported as confirmed right now; after a failure, of all that never were. No copy: a view of a payload up to
        `v2.JOIN_MAX` bytes keeps the frames of its whole run alive, a bigger one only its own buffer."""
        return self._appender.sealed(first, last)

    def resend(self, bookie_index: int) -> None:
        """Send everything that is not confirmed again to one bookie of the ensemble."""
        self._appender.resend(bookie_index)

    async def read(self, first: int, last: int, *, size_max: int) -> list[memoryview]:
        """As LedgerReader.read, up to the last confirmed entry."""
        last = min(last, self.last_confirmed)
        return await read_range(self._reads, self.metadata, self.ledger_id, first, last, size_max, self.length)

    async def close(self) -> None:
        """End the ledger at its last confirmed entry; fine if done before.

        Entries not confirmed are given up: `on_failed` says LedgerClosedError if there are any. A fenced writer leaves the
        metadata to whom fenced it. LedgerConflictError, NoSuchLedgerError, MetadataError.
        """
        self._appender.stop(LedgerClosedError(f"ledger {self.ledger_id} is closed"))
        async with self._closing:
            if self._closed:
                return
            if not isinstance(self.error, LedgerFencedError):
                last = self._appender.confirmed
                length = self._appender.confirmed_length
                rule = partial(metadata_updates.close, last=last, length=length)
                self.metadata = (await metadata_updates.update(self._context, self.ledger_id, rule)).value
            self._closed = True
            self._appender.on_confirmed = ignore_confirmed
            self._appender.on_failed = ignore_failed

    def _bookies_failed(self) -> None:
        if not self._changing:
            self._changing = True
            self._context.start(self._change_ensemble, f"ledger {self.ledger_id} ensemble change")

    async def _change_ensemble(self) -> None:
        """Replace failed bookies until none is left; failures that come meanwhile make for another round."""
        appender = self._appender
        try:
            while appender.failed and appender.error is None:
                await self._replace_failed()
        except LedgerError as error:
            log.warning("ledger given up", ledger_id=self.ledger_id, error=str(error))
            appender.fail(error)
        except MetadataError as error:
            log.warning("ledger given up", ledger_id=self.ledger_id, error=str(error))
            appender.fail(LedgerWriteError(f"the ensemble of ledger {self.ledger_id} cannot be changed: {error}"))
        finally:
            self._changing = False

    async def _replace_failed(self) -> None:
        context = self._context
        appender = self._appender
        now = trio.current_time()
        failed = {index: appender.ensemble[index] for index in appender.failed}
        for index, bookie_id in failed.items():
            self._failed_at[bookie_id] = now
            log.warning("bookie failed", ledger_id=self.ledger_id, bookie=bookie_id, error=str(appender.failed[index]))
        avoid = [each for each, since in self._failed_at.items() if now - since < context.config.quarantine_s]
        chosen = replace_bookies(context.available(), appender.ensemble, failed, context.rng, avoid=avoid)
        first = appender.confirmed + 1
        rule = partial(metadata_updates.replace_failed, first=first, failed=failed, ensemble=chosen)
        self.metadata = (await metadata_updates.update(context, self.ledger_id, rule)).value
        ensemble = self.metadata.fragments[-1].bookies
        log.info("ensemble changed", ledger_id=self.ledger_id, first_entry_id=first, bookies=",".join(ensemble))
        appender.change_ensemble(ensemble)

"""Handling of bookies that fail a writer. They are replaced, in rounds, until none is left, or excused if ensemble
changes are delayed or disabled.

    one round    failed bookies -> placement -> compare-and-set of the metadata -> appender continues with the new one
    delayed      a failed bookie is excused while every write set can form an ack quorum of the others; then all are
                 replaced
    disabled     every failed bookie is excused

A round that finds the ledger closed or in recovery ends the writer. A round that finds the bookies replaced by another
client adopts those replacements. Source: BookKeeper's LedgerHandle.handleBookieFailure, EnsembleChangeLoop,
PendingAddOp.writeComplete.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

import trio

from quire.ledger import metadata_updates
from quire.ledger.context import LedgerContext
from quire.ledger.errors import BookieError, BookieRefusedError, LedgerError, LedgerWriteError
from quire.ledger.striping import Striping
from quire.ledger.writing.appender import Appender
from quire.ledger.writing.unacked_notes import note_unacked
from quire.metadata.errors import MetadataError
from quire.metadata.ledgers import LedgerMetadata
from quire.service.log import get_logger
from quire.wire.bookkeeper.v2 import Rc

log = get_logger(__name__)


def quorums_survive(striping: Striping, ack_quorum: int, out: Collection[int]) -> bool:
    """Return whether every write set can form an ack quorum without the bookies at the indices `out`. Pure.

    >>> quorums_survive(Striping(3, 3), 2, [0]), quorums_survive(Striping(3, 3), 2, [0, 2])
    (True, False)
    """
    spare = striping.write_quorum - ack_quorum
    return all(sum([index in out for index in write_set]) <= spare for write_set in striping.write_sets())


class EnsembleChanges:
    """Ensemble changes of one writer."""

    def __init__(
        self,
        context: LedgerContext,
        ledger_id: int,
        metadata: LedgerMetadata,
        appender: Appender,
        *,
        stored: Callable[[LedgerMetadata], None],
        allowed: bool = True,
    ) -> None:
        """`stored` is called with the metadata after each change. If not `allowed`, a failure ends the writer."""
        self._context = context
        self._ledger_id = ledger_id
        self._ack_quorum = metadata.ack_quorum
        self._custom_metadata = metadata.custom_metadata
        self._striping = Striping(metadata.ensemble_size, metadata.write_quorum)
        self._appender = appender
        self._stored = stored
        self._allowed = allowed
        self._changing = False
        self._changes = 0
        self._failed_at: dict[str, float] = {}
        appender.on_bookies_failed = self._bookies_failed
        appender.excuses = self._excuses

    def _excuses(self, index: int, error: BookieError) -> bool:
        config = self._context.config
        appender = self._appender
        if not self._allowed or appender.failed or not (config.disable_ensemble_change or config.delay_ensemble_change):
            return False
        if not config.disable_ensemble_change:
            read_only = isinstance(error, BookieRefusedError) and error.rc == Rc.READ_ONLY
            out = {index, *appender.excused}
            if read_only or not quorums_survive(self._striping, self._ack_quorum, out):
                return False
        bookie_id = appender.ensemble[index]
        log.warning("bookie failed, kept", ledger=self._ledger_id, bookie=bookie_id, reason=str(error))
        return True

    def _bookies_failed(self) -> None:
        if not self._changing:
            self._changing = True
            self._context.start(self._change, f"ledger {self._ledger_id} ensemble change")

    async def _change(self) -> None:
        """Replace failed bookies until none is left; failures in the meantime lead to another round."""
        appender = self._appender
        try:
            while appender.failed and appender.error is None:
                await self._replace_failed()
        except LedgerError as error:
            self._give_up(error)
        except MetadataError as error:
            self._give_up(LedgerWriteError(f"the ensemble of ledger {self._ledger_id} cannot be changed: {error}"))
        finally:
            self._changing = False

    def _give_up(self, error: LedgerError) -> None:
        if self._appender.error is None:
            log.warning("writer of a ledger ended", ledger=self._ledger_id, reason=str(error))
            self._appender.fail(error)

    async def _replace_failed(self) -> None:
        context = self._context
        config = context.config
        appender = self._appender
        now = trio.current_time()
        failed = {index: appender.ensemble[index] for index in appender.failed}
        for index, bookie_id in failed.items():
            self._failed_at[bookie_id] = now
            log.warning("bookie failed", ledger=self._ledger_id, bookie=bookie_id, reason=str(appender.failed[index]))
        causes = "; ".join([str(error) for error in appender.failed.values()])
        if not self._allowed:
            raise LedgerWriteError(f"ledger {self._ledger_id} defers syncs, so no bookie can be replaced: {causes}")
        if config.ensemble_changes_max is not None and self._changes >= config.ensemble_changes_max:
            raise LedgerWriteError(
                f"ledger {self._ledger_id} has had its {self._changes} ensemble changes, no more are allowed: {causes}"
            )
        self._changes += 1
        self._failed_at = {each: since for each, since in self._failed_at.items() if now - since < config.quarantine_s}
        with context.stats.replacements.timed():
            chosen = context.placement.replace_bookie(
                self._striping.ensemble_size,
                self._striping.write_quorum,
                self._ack_quorum,
                appender.ensemble,
                failed,
                frozenset(self._failed_at),
                self._custom_metadata,
            )
        first = appender.confirmed + 1
        if not failed.keys().isdisjoint(appender.lacking()):
            # Stored first: afterwards a crash of this process would leave nothing that leads to the missing copies.
            await note_unacked(context, self._ledger_id, first)
        rule = partial(metadata_updates.replace_failed, first=first, failed=failed, ensemble=chosen)
        metadata = (await metadata_updates.update(context, self._ledger_id, rule)).value
        self._stored(metadata)
        context.stats.ensemble_changes += 1
        ensemble = metadata.fragments[-1].bookies
        log.info("ensemble changed", ledger=self._ledger_id, first_entry_id=first, bookies=",".join(ensemble))
        appender.change_ensemble(ensemble)

"""Explicit LACs: an idle writer sends its LAC, so that readers of the open ledger can read its last entries.

Each entry carries the LAC known when it was sent, so bookies always lag by the entries since then. Source: BookKeeper's
ExplicitLacUpdateFlow, PendingWriteLacOp.
"""

from __future__ import annotations

import trio

from quire.ledger.bookies.pool import Answer
from quire.ledger.context import LedgerContext
from quire.ledger.errors import BookieUnavailableError, rc_name
from quire.ledger.striping import Striping
from quire.ledger.writing.appender import Appender
from quire.service.log import get_logger
from quire.wire.bookkeeper.entry import Digest
from quire.wire.bookkeeper.v2 import Rc

log = get_logger(__name__)


class ExplicitLacSender:
    """Explicit LACs of one writer."""

    def __init__(
        self,
        context: LedgerContext,
        ledger_id: int,
        appender: Appender,
        striping: Striping,
        ack_quorum: int,
        digest: Digest,
        key: bytes,
    ) -> None:
        self._context = context
        self._ledger_id = ledger_id
        self._appender = appender
        self._striping = striping
        self._ack_quorum = ack_quorum
        self._digest = digest
        self._key = key
        self._told = -1

    async def run(self) -> None:
        """Send the LAC every `explicit_lac_interval_s` if it advanced, until the writer ends."""
        appender = self._appender
        while appender.error is None:
            await trio.sleep(self._context.config.explicit_lac_interval_s)
            lac = appender.lac
            if appender.error is None and lac > max(appender.lac_sent, self._told) and await self.tell(lac):
                self._told = lac

    async def tell(self, lac: int) -> bool:
        """Send the LAC to the write set of its entry; return whether an ack quorum stored it."""
        began = trio.current_time()
        stored = await self._tell(lac)
        outcomes = self._context.stats.explicit_lacs
        (outcomes.good if stored else outcomes.bad).observe(1000 * (trio.current_time() - began))
        return stored

    async def _tell(self, lac: int) -> bool:
        package = self._digest.seal_lac(self._ledger_id, lac)
        answers: list[Answer] = []
        for index in self._striping.write_set(lac):
            bookie_id = self._appender.ensemble[index]
            try:
                connection = self._context.bookies.connection(bookie_id)
            except BookieUnavailableError as error:
                log.debug("explicit LAC not sent", ledger=self._ledger_id, bookie=bookie_id, reason=str(error))
                continue
            answers.append(connection.write_lac(self._ledger_id, lac, self._key, package))
        accepted = 0
        for answer in answers:
            try:
                rc = (await answer.wait()).rc
            except BookieUnavailableError as error:
                log.debug("explicit LAC not sent", ledger=self._ledger_id, reason=str(error))
                continue
            accepted += rc == Rc.OK
            if rc != Rc.OK:
                log.debug("explicit LAC refused", ledger=self._ledger_id, rc=rc_name(rc))
        return accepted >= self._ack_quorum

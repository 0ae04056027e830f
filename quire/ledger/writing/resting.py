"""Stand-in for the appender of a ledger that is open and not written to.

A broker has an open ledger for each topic and each subscription, and most of them are idle. What only appending needs
(the appender, its ack tracker, its sealer, a channel per bookie) takes more than a kilobyte, so an idle writer gives it
back and keeps the facts: the last entry and the length. The first append makes another appender, which continues there.

What holds: an appender is replaced only while nothing is under way and no bookie has failed, so the next one has
nothing to take over but these facts. Ids, the LAC and the length go on as if there had been one appender.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from quire.ledger.context import LedgerContext
from quire.ledger.errors import BookieError, LedgerError
from quire.ledger.striping import striping_of
from quire.ledger.writing.ack_tracker import AckTracker
from quire.ledger.writing.appender import Appender
from quire.ledger.writing.pending_runs import Sealer
from quire.metadata.ledgers import LedgerMetadata
from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.entry import Buffer, digest_of, master_key
from quire.world.errors import again


def made_appender(
    context: LedgerContext,
    ledger_id: int,
    metadata: LedgerMetadata,
    tracker: AckTracker,
    length: int,
    *,
    high_priority: bool,
    deferred_sync: bool,
) -> Appender:
    """Return an appender that continues behind what the tracker has confirmed, which has `length` bytes of payload."""
    striping = striping_of(metadata.ensemble_size, metadata.write_quorum)
    sealer = Sealer(
        ledger_id,
        digest_of(metadata.digest_type, metadata.password),
        master_key(metadata.password),
        striping,
        flags=v2.HIGH_PRIORITY if high_priority else 0,
        frame_max=context.config.frame_max_of(deferred_sync=deferred_sync),
    )
    return Appender(
        context,
        ledger_id,
        metadata.fragments[-1].bookies,
        striping,
        metadata.ack_quorum,
        sealer,
        confirmed=tracker.confirmed,
        length=length,
        tracker=tracker,
        write_flags=v3.DEFERRED_SYNC if deferred_sync else 0,
    )


class Waking(Protocol):
    """Writer that can make its appender again."""

    def _wake(self) -> Appender: ...


class RestingAppender:
    """Facts of an appender that was given back; see `Appender` for their meaning."""

    __slots__ = ("__weakref__", "_writer", "ensemble", "error", "lac", "length")

    pending_bytes = 0

    def __init__(self, writer: Waking, appender: Appender) -> None:
        self._writer = writer
        self.ensemble = appender.ensemble
        self.lac = appender.lac
        self.length = appender.length
        self.error: LedgerError | None = None

    @property
    def last_confirmed(self) -> int:
        return self.lac

    @property
    def last_pushed(self) -> int:
        return self.lac

    @property
    def confirmed(self) -> int:
        return self.lac

    @property
    def confirmed_length(self) -> int:
        return self.length

    @property
    def failed(self) -> dict[int, BookieError]:
        return {}

    @property
    def excused(self) -> dict[int, BookieError]:
        return {}

    def append(self, payloads: Sequence[Buffer], at: int = -1) -> int:
        """Make an appender, and have it send the entries. Raises as `Appender.append`."""
        if self.error is not None:
            raise again(self.error) from self.error
        return self._writer._wake().append(payloads, at)

    def sealed(self, first: int, last: int) -> list[memoryview]:
        """Return nothing: no entry is unconfirmed."""
        return []

    def resend(self, index: int) -> None:
        """Do nothing: no entry is unconfirmed."""

    def stop(self, error: LedgerError) -> None:
        """Append nothing more."""
        self.error = self.error or error

    async def note_late(self) -> None:
        """Do nothing: every member has acknowledged every entry."""

"""Writers of one ledger, from its creation to its close. Only they append to it.

    OpenLedger               common to both writers
    LedgerWriter             gives the entry ids itself, one after the other
    AdvancedLedgerWriter     takes them from the application, in any order (`advanced_writer`)

Appending is synchronous and goes by run; only a change of the ensemble, a force and the close wait for others.

Source: BookKeeper's LedgerHandle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import trio

from quire.ledger import metadata_updates
from quire.ledger.context import LedgerContext
from quire.ledger.errors import (
    BookieError,
    LedgerClosedError,
    LedgerError,
    LedgerFencedError,
    LedgerReadError,
    TooManyPendingError,
)
from quire.ledger.reading.reader import EntryReads, read_range
from quire.ledger.striping import Striping, striping_of
from quire.ledger.writing.ack_tracker import AckTracker
from quire.ledger.writing.appender import Appender
from quire.ledger.writing.ensemble_changes import EnsembleChanges
from quire.ledger.writing.explicit_lac import ExplicitLacSender
from quire.ledger.writing.forcing import force_all
from quire.ledger.writing.resting import RestingAppender, made_appender
from quire.ledger.writing.unheard import ignore_confirmed, ignore_failed
from quire.metadata.errors import MetadataError
from quire.metadata.ledgers import LedgerMetadata
from quire.metadata.store import Versioned
from quire.service.rare_lock import RareLock
from quire.wire.bookkeeper.entry import Buffer, digest_of, master_key
from quire.world.errors import again


class OpenLedger:
    """The writing end of one ledger.

    `on_confirmed(first, last)` is called in entry order, with ranges inclusive, when ack-quorum bookies have the
    entries on disk; `on_failed(error)` at most once, when nothing more will be confirmed. Neither is called from within
    `append`; neither may raise. Set both before the first append.

    With deferred syncs bookies acknowledge before the entries are on their disks: `on_confirmed` then says only that
    they were taken, `last_add_confirmed` moves with `force` alone, and the ledger is closed there. No bookie of such a
    ledger can be replaced; one that is lost with entries not forced ends the writer.
    """

    __slots__ = (
        "_appender",
        "_closed",
        "_closing",
        "_context",
        "_entry_reads",
        "_forced_length",
        "_high_priority",
        "_moved",
        "_on_confirmed",
        "_on_failed",
        "_pending_max",
        "_seen_version",
        "_version",
        "deferred_sync",
        "ledger_id",
        "metadata",
    )

    def __init__(
        self,
        context: LedgerContext,
        ledger_id: int,
        metadata: LedgerMetadata,
        *,
        deferred_sync: bool = False,
        high_priority: bool = False,
        tracker: Callable[[Striping, int], AckTracker] = AckTracker,
    ) -> None:
        self.ledger_id = ledger_id
        self.metadata = metadata
        """As this writer last stored or read it."""
        self.deferred_sync = deferred_sync
        self._context = context
        self._on_confirmed: Callable[[int, int], None] = ignore_confirmed
        self._on_failed: Callable[[LedgerError], None] = ignore_failed
        self._high_priority = high_priority
        striping = striping_of(metadata.ensemble_size, metadata.write_quorum)
        appender = self._made_appender(tracker(striping, metadata.ack_quorum))
        self._appender: Appender | RestingAppender = appender
        self._entry_reads: EntryReads | None = None
        self._version: int | None = 0
        """Version of the metadata in the store, as far as is known."""
        self._pending_max: float = math.inf if (most := context.config.pending_bytes_max) is None else most
        self._forced_length = 0
        self._seen_version = -1
        """Version of the metadata that was read last, after a failed read of entries."""
        self._closing = RareLock()
        self._closed = False
        self._moved: trio.Event | None = None
        if context.config.explicit_lac_interval_s:
            digest, key = digest_of(metadata.digest_type, metadata.password), master_key(metadata.password)
            lac = ExplicitLacSender(context, ledger_id, appender, striping, metadata.ack_quorum, digest, key)
            context.start(lac.run, f"ledger {ledger_id} explicit LAC")

    def _made_appender(self, tracker: AckTracker, length: int = 0) -> Appender:
        appender = made_appender(
            self._context,
            self.ledger_id,
            self.metadata,
            tracker,
            length,
            high_priority=self._high_priority,
            deferred_sync=self.deferred_sync,
        )
        appender.excuses = self._excuses_first
        return appender

    @property
    def on_confirmed(self) -> Callable[[int, int], None]:
        return self._on_confirmed

    @on_confirmed.setter
    def on_confirmed(self, function: Callable[[int, int], None]) -> None:
        self._on_confirmed = function
        if self._moved is None:
            self._listen()

    @property
    def on_failed(self) -> Callable[[LedgerError], None]:
        return self._on_failed

    @on_failed.setter
    def on_failed(self, function: Callable[[LedgerError], None]) -> None:
        self._on_failed = function
        if self._moved is None:
            self._listen()

    def _listen(self) -> None:
        """Have the appender call what is to be called. One that rests calls nothing, and the next one asks here."""
        appender = self._appender
        if isinstance(appender, Appender):
            alone = self._moved is None
            appender.on_confirmed = self._on_confirmed if alone else self._confirmed
            appender.on_failed = self._on_failed if alone else self._failed

    @property
    def last_pushed(self) -> int:
        """Last entry appended (LAP), the highest id, -1 for none."""
        return self._appender.last_pushed

    @property
    def last_confirmed(self) -> int:
        """Last entry reported by `on_confirmed`, -1 for none."""
        return self._appender.last_confirmed

    @property
    def last_add_confirmed(self) -> int:
        """The LAC, up to which readers may read: `last_confirmed`, or with deferred syncs the last entry forced."""
        return self._appender.lac

    @property
    def length(self) -> int:
        """Payload bytes of all entries appended."""
        return self._appender.length

    @property
    def pending_bytes(self) -> int:
        """Bytes kept for entries that are not confirmed, frame heads included."""
        return self._appender.pending_bytes

    @property
    def error(self) -> LedgerError | None:
        """Why nothing more can be appended, if so."""
        return self._appender.error

    @property
    def failed_bookies(self) -> dict[str, str]:
        """Bookies of the ensemble that failed and were not replaced yet, or are kept all the same; and why."""
        appender = self._appender
        failed = {**appender.failed, **appender.excused}
        return {appender.ensemble[index]: str(error) for index, error in failed.items()}

    def sealed(self, first: int, last: int) -> list[memoryview]:
        """Return payloads of unconfirmed entries, without a copy.

        Entries that are being reported as confirmed right now are among them. After a failure the payloads of all
        entries that never were confirmed are there.

        Args:
            first: First entry id.
            last: Last entry id, inclusive.

        Returns:
            Views of the payloads. A view of a payload up to `v2.JOIN_MAX` bytes keeps the frames of its whole run
            alive, a bigger one only its own buffer.
        """
        return self._appender.sealed(first, last)

    def resend(self, bookie_index: int) -> None:
        """Send all unconfirmed entries to one bookie of the ensemble again.

        Args:
            bookie_index: Its place in the ensemble.
        """
        self._appender.resend(bookie_index)

    async def wait_confirmed(self, entry_id: int) -> None:
        """Wait until an entry is confirmed.

        Args:
            entry_id: Id of the entry.

        Raises:
            LedgerError: The writer has ended, and the entry will never be confirmed.
        """
        appender = self._appender
        while appender.last_confirmed < entry_id:
            if appender.error is not None:
                raise again(appender.error) from appender.error
            if self._moved is None or self._moved.is_set():
                self._moved = trio.Event()
                self._listen()
            await self._moved.wait()
            appender = self._appender

    async def wait_room(self) -> None:
        """Wait until the next append would not be refused with TooManyPendingError. Raises what ended the writer."""
        while self._appender.pending_bytes > self._pending_max:
            await self.wait_confirmed(self.last_confirmed + 1)

    def _refuse(self) -> None:
        """Raise the error that ended the writer, or else TooManyPendingError."""
        error = self._appender.error
        if error is not None:
            raise again(error) from error
        raise TooManyPendingError(
            f"ledger {self.ledger_id}: {self.pending_bytes} bytes are not confirmed yet, {self._pending_max} are "
            "allowed"
        )

    async def read(self, first: int, last: int, *, size_max: int) -> list[memoryview]:
        """Read confirmed entries; after a failure again for each change of the metadata.

        A repair may have replaced bookies of an earlier fragment.

        Args:
            first: First entry id.
            last: Last entry id, inclusive; entries past the last confirmed one are left out.
            size_max: Return at least one entry, and about this many bytes at most.

        Returns:
            Views of the payloads, in order.

        Raises:
            LedgerReadError: As `LedgerReader.read`.
        """
        last = min(last, self.last_add_confirmed)
        while True:
            try:
                return await read_range(
                    self._reads(), self.metadata, self.ledger_id, first, last, size_max, self.length
                )
            except LedgerReadError:
                if first > last or not await self._look_again():
                    raise

    def _reads(self) -> EntryReads:
        reads = self._entry_reads
        if reads is None:
            stored = self.metadata
            digest = digest_of(stored.digest_type, stored.password)
            striping = striping_of(stored.ensemble_size, stored.write_quorum)
            reads = self._entry_reads = EntryReads(self._context, self.ledger_id, digest, striping)
        return reads

    async def force(self) -> None:
        """Have everything confirmed so far synced by all bookies of the ensemble; then the LAC covers it.

        BookieUnavailableError, BookieRefusedError: one did not say so, nothing has changed, try again. What ended the
        writer.
        """
        appender = self._appender
        if appender.error is not None:
            raise again(appender.error) from appender.error
        upto = appender.confirmed
        length = appender.confirmed_length
        if upto < 0:
            return
        await force_all(self._context, self.ledger_id, appender.ensemble)
        if appender.error is not None:
            raise again(appender.error) from appender.error
        if self.deferred_sync and upto > appender.lac:
            appender.lac = upto
            self._forced_length = length

    async def close(self) -> None:
        """End the ledger at its last add confirmed; fine if done before.

        Entries not confirmed are given up: `on_failed` says LedgerClosedError if there are any. With deferred syncs
        entries not forced are cut off: `force` first. A fenced writer leaves the metadata to whom fenced it.
        LedgerConflictError, NoSuchLedgerError, MetadataError.
        """
        self._appender.stop(LedgerClosedError(f"ledger {self.ledger_id} is closed"))
        if self._moved is not None:
            self._moved.set()
        async with self._closing:
            if self._closed:
                return
            if not isinstance(self.error, LedgerFencedError):
                await self._appender.note_late()
                last = self._appender.lac if self.deferred_sync else self._appender.confirmed
                length = self._forced_length if self.deferred_sync else self._appender.confirmed_length
                rule = partial(metadata_updates.close, last=last, length=length)
                known = None if self._version is None else Versioned(self.metadata, self._version)
                self.metadata = (await metadata_updates.update(self._context, self.ledger_id, rule, known)).value
            self._closed = True
            appender = self._appender
            if isinstance(appender, Appender):
                appender.on_confirmed, appender.on_failed = ignore_confirmed, ignore_failed

    def _excuses_first(self, index: int, error: BookieError) -> bool:
        """Make what decides on failed bookies, and have it decide on the first one."""
        appender = self._appender
        assert isinstance(appender, Appender), "no bookie of a resting appender fails"
        EnsembleChanges(
            self._context,
            self.ledger_id,
            self.metadata,
            appender,
            stored=self._stored,
            allowed=not self.deferred_sync,
        )  # from now on the appender asks it
        return appender.excuses(index, error)

    def _stored(self, metadata: LedgerMetadata) -> None:
        self.metadata = metadata
        self._version = None

    async def _look_again(self) -> bool:
        """Read the metadata; whether entries of earlier fragments lie elsewhere than we thought."""
        try:
            stored = await self._context.ledgers.read(self.ledger_id)
        except MetadataError:
            return False  # What went wrong at the bookies tells more.
        if stored is None or stored.version <= self._seen_version:
            return False  # (a server of the store may be behind)
        self._seen_version = stored.version
        self._version = None
        before = self.metadata.fragments
        fragments = metadata_updates.with_repairs(before, stored.value)
        self.metadata = replace(self.metadata, fragments=fragments)
        return fragments != before

    def _confirmed(self, first: int, last: int) -> None:
        self._on_confirmed(first, last)
        if self._moved is not None:
            self._moved.set()

    def _failed(self, error: LedgerError) -> None:
        self._on_failed(error)
        if self._moved is not None:
            self._moved.set()


class LedgerWriter(OpenLedger):
    """Writer of one ledger from its creation on. Entries get the ids 0, 1, 2, ... in the order of appending."""

    __slots__ = ()

    def rest(self) -> None:
        """Give back the memory that only appending needs, unless it is in use; the next append makes it again."""
        appender = self._appender
        if not isinstance(appender, Appender) or not appender.is_idle or self._moved is not None:
            return
        if self.deferred_sync or self._context.config.explicit_lac_interval_s:
            return
        appender.stop(LedgerClosedError(f"ledger {self.ledger_id} rests"))
        self._replace(RestingAppender(self, appender))

    def _wake(self) -> Appender:
        """Return an appender that continues where the last one ended."""
        metadata, last = self.metadata, self._appender
        striping = striping_of(metadata.ensemble_size, metadata.write_quorum)
        appender = self._made_appender(AckTracker(striping, metadata.ack_quorum, confirmed=last.lac), last.length)
        self._replace(appender)
        self._listen()
        return appender

    def _replace(self, appender: Appender | RestingAppender) -> None:
        self._appender = appender

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

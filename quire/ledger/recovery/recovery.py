"""Recovery: fence a ledger left open by its writer, find its last entry, copy the tail to full quorums, close it.

    OPEN -> IN_RECOVERY (CAS)
    fence every bookie of the last ensemble, until no ack quorum can form any more; LAC = highest LAC seen,
        at least the entry before the last fragment
    read LAC+1, LAC+2, ... from the current ensemble, each read fencing too:
        one valid copy: the entry exists; write it again to its write set (RECOVERY_ADD)
        denied by enough bookies that it cannot have been confirmed: the ledger ends before it
        neither: fail, the ledger stays IN_RECOVERY
    IN_RECOVERY -> CLOSED (CAS), with the ensembles changed meanwhile; if another client closed it, adopt that

`rules` and `metadata_updates` decide; this module waits and applies the decisions. Source: BookKeeper's
LedgerRecoveryOp,
ReadLastConfirmedOp, ListenerBasedPendingReadOp; BookKeeperProtocol.tla.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import trio

from quire.ledger import metadata_updates
from quire.ledger.bookies.pool import Answer, Body
from quire.ledger.context import LedgerContext
from quire.ledger.errors import (
    BookieUnavailableError,
    LedgerError,
    LedgerRecoveryError,
    rc_name,
)
from quire.ledger.reading.last_confirmed import LastConfirmed, ask, open_last, read_last_confirmed, take_patiently
from quire.ledger.recovery.rules import RecoveryRead, Verdict
from quire.ledger.striping import Striping
from quire.ledger.writing.appender import Appender
from quire.ledger.writing.pending_runs import Sealer
from quire.ledger.writing.unacked_notes import WHOLE, note_unacked
from quire.ledger.writing.unheard import ignore_bookies_failed, ignore_confirmed, ignore_failed
from quire.metadata.ledgers import LedgerMetadata, LedgerState
from quire.service.log import get_logger
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Digest, master_key, read_header
from quire.wire.bookkeeper.v2 import Rc

log = get_logger(__name__)

RECOVERY_READ = v2.DO_FENCING | v2.HIGH_PRIORITY
FIRST_WINDOW = 4
WINDOW_BYTES = 4 << 20
"""Bytes in a window above which the next window is made smaller."""
ASKED_BYTES_MAX = 64 << 20
"""Largest number of bytes that one bookie may have to send at once if every entry had the maximal size.

Earlier entries do not predict the size of later ones.
"""
LENGTH_WAIT_S = 3.0
"""Seconds to wait for a copy of the last entry, which is only needed for the ledger's length; then it is closed without
one.
"""
PENDING_BYTES_MAX = 16 << 20
"""Bytes of rewritten entries above which recovery waits for confirmations."""


class Recovery:
    """One recovery of one ledger."""

    def __init__(
        self, context: LedgerContext, ledger_id: int, metadata: LedgerMetadata, digest: Digest, password: bytes
    ) -> None:
        self._context = context
        self._ledger_id = ledger_id
        self._started = metadata
        self._fragments = metadata.fragments
        self._digest = digest
        self._password = password
        self._key = master_key(password)
        self._striping = Striping(metadata.ensemble_size, metadata.write_quorum)
        self._progress = trio.Event()
        self._failed_bookies: list[str] = []
        self._entries_read = 0

    async def run(self) -> LedgerMetadata:
        """Recover the ledger; return its metadata, closed."""
        found = await read_last_confirmed(
            self._context, self._ledger_id, self._started, self._digest, self._password, fence=True
        )
        appender = self._appender(found)
        try:
            await self._copy_tail(appender)
            if found.lac == appender.last_pushed:
                appender.length = await self._length_after(found)
        finally:
            appender.on_failed = ignore_failed
            appender.stop(LedgerRecoveryError(f"recovery of ledger {self._ledger_id} has ended"))
            # They refer to the appender: it would stay in memory until the collector looks at all objects.
            appender.on_confirmed, appender.on_bookies_failed = ignore_confirmed, ignore_bookies_failed
        await self._note_unacked(found, appender)
        rule = partial(
            metadata_updates.end_recovery,
            started=self._started,
            fragments=self._fragments,
            last=appender.last_confirmed,
            length=appender.length,
        )
        closed = (await metadata_updates.update(self._context, self._ledger_id, rule)).value
        self._context.stats.recovered_reads.observe(self._entries_read)
        self._context.stats.recovered_adds.observe(appender.last_pushed - found.lac)
        log.info("ledger recovered", ledger=self._ledger_id, last_entry_id=closed.last_entry_id, lac_found=found.lac)
        return closed

    async def _note_unacked(self, found: LastConfirmed, appender: Appender) -> None:
        """Have the ledger noted if members may lack entries: before it is stored as closed, see `late_acks`.

        Entries up to the LAC are not written again, even if a member of this or an earlier fragment lacks them. A
        bookie that took the place of another is named only by the close. If it has lost its disk by then, it does not
        know that it lacks the ledger's entries.
        """
        is_partial = self._started.ack_quorum < self._started.write_quorum
        if self._fragments != self._started.fragments or (is_partial and found.lac >= 0):
            await note_unacked(self._context, self._ledger_id, WHOLE)
        elif is_partial:
            await appender.note_late()

    def _appender(self, found: LastConfirmed) -> Appender:
        """Return the appender of the tail. All its entries carry the LAC that was found.

        What this recovery confirms must not be in them: its ensemble is stored only with the close. Another recovery
        that closes the ledger first would begin after such a LAC, and leave the entries before it with the copies that
        the stored ensemble happens to have (found by simulation: ledger seed 1107033 with full disks).
        """
        flags = v2.RECOVERY_ADD | v2.HIGH_PRIORITY
        appender = Appender(
            self._context,
            self._ledger_id,
            self._started.fragments[-1].bookies,
            self._striping,
            self._started.ack_quorum,
            Sealer(self._ledger_id, self._digest, self._key, self._striping, flags=flags),
            confirmed=found.lac,
            length=found.length,
        )

        def progressed(first: int, last: int) -> None:
            appender.lac = found.lac
            self._progress.set()

        appender.on_confirmed = progressed
        appender.on_failed = lambda error: self._progress.set()
        appender.on_bookies_failed = lambda: self._context.afterwards.call(partial(self._replace_failed, appender))
        return appender

    async def _copy_tail(self, appender: Appender) -> None:
        """Write every entry after the LAC again, up to the first that cannot have been confirmed."""
        window_max = self._window_max()
        window = min(FIRST_WINDOW, window_max)
        ended = False
        while not ended:
            first = appender.last_pushed + 1
            entries = await self._read_tail(first, window)
            self._entries_read += len(entries)
            ended = len(entries) < window
            self._check(appender)
            for length, payloads in self._runs(first, entries):
                appender.length = length
                appender.append(payloads)
            await self._confirmed(appender, 0 if ended else PENDING_BYTES_MAX)
            size = sum(map(len, entries))
            window = min(2 * window, window_max) if size < WINDOW_BYTES else 1 + window // 2

    def _window_max(self) -> int:
        """Return the largest number of entries requested at once; in a striped ledger a bookie gets only its part of
        them.
        """
        striping = self._striping
        rounds, rest = divmod(ASKED_BYTES_MAX // v2.FRAME_MAX, striping.write_quorum)
        return min(self._context.config.recovery_window, rounds * striping.ensemble_size + rest)

    def _runs(self, first: int, entries: Sequence[memoryview]) -> list[tuple[int, list[memoryview]]]:
        """Yield runs of payloads, each with the length before it.

        Every entry keeps its original length, which does not grow with the ids if the application assigned them out of
        order.
        """
        runs: list[tuple[int, list[memoryview]]] = []
        expected = -1
        for entry_id, entry in enumerate(entries, first):
            payload = self._digest.open(self._ledger_id, entry_id, entry)
            before = read_header(entry).length - len(payload)
            if before != expected:
                runs.append((before, []))
            runs[-1][1].append(payload)
            expected = before + len(payload)
        return runs

    async def _length_after(self, found: LastConfirmed) -> int:
        """Return the payload bytes up to the LAC if no entry follows it.

        (`found` may have the length at a later, never confirmed entry, or none if the last fragment is empty.)
        """
        if found.lac < 0:
            return 0
        length = await self._length_at(found.lac)
        if length is not None:
            return length
        log.warning(
            "ledger recovered without its length: no copy of its last entry can be read now",
            ledger=self._ledger_id,
            last_entry_id=found.lac,
            length=found.length,
        )
        return found.length

    async def _length_at(self, entry_id: int) -> int | None:
        """Return the payload bytes up to the entry, as stored in it; None if none of its bookies sends a copy within
        `LENGTH_WAIT_S`.
        """
        bookies = self._started.fragment_at(entry_id).bookies
        write_set = self._striping.write_set(entry_id)
        lengths: list[int] = []

        def take(place: int, outcome: Body | BookieUnavailableError) -> bool:
            if isinstance(outcome, v2.ReadResponse) and outcome.rc == Rc.OK:
                header = open_last(self._digest, self._ledger_id, outcome.entry)
                if header is not None and header.entry_id == entry_id:
                    lengths.append(header.length)
            return bool(lengths)

        def ask_one(place: int) -> Answer:
            return ask(self._context, bookies[write_set[place]], self._ledger_id, [entry_id], 0, self._key)[0]

        backoff = self._context.backoff()
        with trio.move_on_after(LENGTH_WAIT_S):
            while True:
                await take_patiently(self._context, [ask_one(place) for place in range(len(write_set))], ask_one, take)
                if lengths:
                    break
                await trio.sleep(backoff.next())
        return lengths[0] if lengths else None

    async def _read_tail(self, first: int, window: int) -> list[memoryview]:
        """Read existing entries from `first` on, up to `window`; fewer if the ledger ends there.

        LedgerRecoveryError.
        """
        bookies = self._started.fragments[-1].bookies
        entry_ids = range(first, first + window)
        asked: dict[tuple[int, int], Answer] = {}
        for index, bookie_id in enumerate(bookies):
            own = self._striping.select(index, first, entry_ids)
            for entry_id, answer in zip(
                own, ask(self._context, bookie_id, self._ledger_id, own, RECOVERY_READ, self._key), strict=True
            ):
                asked[entry_id, index] = answer
        entries: list[memoryview] = []
        for entry_id in entry_ids:
            write_set = self._striping.write_set(entry_id)
            answers = [asked[entry_id, index] for index in write_set]
            entry = await self._decide(entry_id, [bookies[index] for index in write_set], answers)
            if entry is None:
                break
            entries.append(entry)
        return entries

    async def _decide(self, entry_id: int, bookies: Sequence[str], answers: Sequence[Answer]) -> memoryview | None:
        """Return a valid copy of the entry, or None if it cannot have been confirmed."""
        reading = RecoveryRead(self._started.write_quorum, self._started.ack_quorum)
        copies: list[memoryview] = []
        causes: list[str] = []

        def take(place: int, outcome: Body | BookieUnavailableError) -> bool:
            if isinstance(outcome, BookieUnavailableError):
                causes.append(f"{bookies[place]}: {outcome}")
            elif outcome.rc == Rc.OK and isinstance(outcome, v2.ReadResponse):
                header = open_last(self._digest, self._ledger_id, outcome.entry)
                if header is not None and header.entry_id == entry_id:
                    reading.found()
                    copies.append(outcome.entry)
                else:
                    causes.append(f"{bookies[place]}: the digest does not match")
            elif outcome.rc in (Rc.NO_ENTRY, Rc.NO_LEDGER):
                reading.denied()
            else:
                causes.append(f"{bookies[place]}: {rc_name(outcome.rc)}")
            return reading.verdict is not Verdict.OPEN

        def ask_again(place: int) -> Answer:
            return ask(self._context, bookies[place], self._ledger_id, [entry_id], RECOVERY_READ, self._key)[0]

        await take_patiently(self._context, answers, ask_again, take)
        if reading.verdict is Verdict.OPEN:
            text = f"whether entry {self._ledger_id}:{entry_id} exists cannot be determined: {'; '.join(causes)}"
            raise LedgerRecoveryError(text)
        return copies[0] if copies else None

    async def _confirmed(self, appender: Appender, pending_max: int) -> None:
        """Wait until at most `pending_max` bytes are unconfirmed."""
        while appender.error is None and appender.pending_bytes > pending_max:
            self._progress = trio.Event()
            await self._progress.wait()
        self._check(appender)

    def _check(self, appender: Appender) -> None:
        if appender.error is not None:
            text = f"the tail of ledger {self._ledger_id} cannot be written: {appender.error}"
            raise LedgerRecoveryError(text) from appender.error

    def _replace_failed(self, appender: Appender) -> None:
        """Change the ensemble in memory; the metadata is updated at the close."""
        if not appender.failed or appender.error is not None:
            return
        failed = dict(appender.failed)
        self._failed_bookies += [appender.ensemble[index] for index in failed]
        try:
            with self._context.stats.replacements.timed():
                ensemble = self._context.placement.replace_bookie(
                    self._started.ensemble_size,
                    self._started.write_quorum,
                    self._started.ack_quorum,
                    appender.ensemble,
                    {index: appender.ensemble[index] for index in failed},
                    self._failed_bookies,
                    self._started.custom_metadata,
                )
        except LedgerError as error:
            causes = "; ".join([str(each) for each in failed.values()])
            appender.fail(type(error)(f"{error}: {causes}"))
            return
        self._fragments = metadata_updates.with_ensemble(self._fragments, appender.confirmed + 1, ensemble)
        appender.change_ensemble(ensemble)


async def recover(context: LedgerContext, ledger_id: int, digest: Digest, password: bytes) -> LedgerMetadata:
    """Recover and close the ledger, whatever its writer does; return its metadata, CLOSED by us or by another client.

    LedgerRecoveryError (it stays in recovery: try later), LedgerUnauthorizedError, NoSuchLedgerError, MetadataError.
    """
    metadata = (await metadata_updates.update(context, ledger_id, metadata_updates.begin_recovery)).value
    if metadata.state is LedgerState.CLOSED:
        return metadata
    try:
        return await Recovery(context, ledger_id, metadata, digest, password).run()
    except LedgerError:
        # Another recovery may have been faster. Then its result is ours, and our failure does not matter.
        stored = await context.ledgers.read(ledger_id)
        if stored is not None and stored.value.state is LedgerState.CLOSED:
            return stored.value
        raise

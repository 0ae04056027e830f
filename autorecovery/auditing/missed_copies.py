"""MissedCopies: the part of the auditor that finds copies which never reached their bookie, before the next check of
all ledgers.

    a bookie is registered in another session than before    every ledger that names it and was stored since is compared
                                                             with its list (`returned`); an open one again later
    a writer or a recovery left a note                       that ledger is compared with the lists of all its members
                                                             (`quire.metadata.unacked`)

Missing copies are marked; a worker restores them. Only closed fragments are compared, because entries of an open one
may still be in transit. Notes of both kinds stay until the comparison is done, so that an auditor that dies leaves them
to the next one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import trio

from autorecovery.at_once import first_change, first_of, until_available
from autorecovery.auditing.bookie_index import LedgerListing, all_ids
from autorecovery.auditing.checks import LISTS_AT_ONCE
from autorecovery.auditing.listed_copies import Compared, ListedCopies
from autorecovery.auditing.metrics import AuditorStats
from autorecovery.auditing.registrations import Registrations
from autorecovery.auditing.returned import Returns, SessionNote
from autorecovery.marks.underreplication import CheckTime, UnderreplicatedLedgers
from quire.ledger.errors import NoSuchLedgerError
from quire.metadata import paths, unacked
from quire.metadata.errors import (
    BadVersionError,
    MalformedMetadataError,
    MetadataError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    UnsupportedLayoutError,
)
from quire.metadata.ledgers import LedgerMetadata, LedgerState
from quire.metadata.store import ANY_VERSION, MetadataStore, Versioned
from quire.service.log import get_logger
from quire.world.backoff import Backoff
from quire.world.doors import Rng
from quire.world.tasks import for_each

log = get_logger(__name__)

NOTE_INTERVAL_S: Final = 600.0
"""Seconds after which the notes on sessions are written again."""
GATHER_S: Final = 1.0
"""Seconds from the first note of a writer until all notes received by then are processed."""
RETRY_FIRST_S: Final = 2.0
RETRY_MAX_S: Final = 60.0


class StoredLedgers(LedgerListing, Protocol):
    """The part of a ledger client that is used here."""

    async def read_stored(self, ledger_id: int) -> Versioned[LedgerMetadata]:
        """Read metadata with its time of storage. NoSuchLedgerError, MetadataError."""


class MissedCopies:
    """Search for missed copies during one term as the auditor."""

    def __init__(
        self,
        store: MetadataStore,
        ledgers: StoredLedgers,
        marks: UnderreplicatedLedgers,
        copies: ListedCopies,
        stats: AuditorStats,
        *,
        root: str,
        at_once: int,
        rng: Rng,
    ) -> None:
        self._store = store
        self._ledgers = ledgers
        self._marks = marks
        self._copies = copies
        self._stats = stats
        self._root = root
        self._rng = rng
        self._at_once = min(at_once, LISTS_AT_ONCE)
        self._registrations = Registrations(store, root)
        self._sessions_folder = paths.join(root, "underreplication/sessions")
        self._returns = Returns({}, None)

    async def run(self) -> None:
        """Run until cancelled. SessionExpiredError."""
        self._returns = await until_available(self._prepare)
        await first_of(self._follow_sessions, self._follow_writers, name="missed copies")

    async def _prepare(self) -> Returns:
        for folder in (self._sessions_folder, unacked.folder(self._root)):
            try:
                await self._store.create(folder, make_parents=True)
            except NodeExistsError:
                continue
        notes: dict[str, SessionNote] = {}
        for name in await self._store.children(self._sessions_folder):
            node = await self._store.get(paths.join(self._sessions_folder, name))
            if node is not None and node.value.isdigit():
                notes[name] = SessionNote(int(node.value), node.modified_ms)
        try:
            checked_ms = await self._marks.check_time(CheckTime.ALL_LEDGERS)
        except MalformedMetadataError:
            checked_ms = None
        return Returns(notes, checked_ms)

    async def _patiently(self, job: Callable[[], Awaitable[bool]], what: str) -> bool:
        """Run the job; return False if it must be tried again, because the job or the metadata service says so."""
        await until_available(self._marks.wait_enabled)
        try:
            return await job()
        except SessionExpiredError:
            raise
        except MetadataError as error:
            log.info("search for missed copies failed, retrying", what=what, reason=str(error))
            return False
        finally:
            self._copies.telling.end()

    # --- bookies that return

    async def _follow_sessions(self) -> None:
        watches = self._registrations.watches()
        backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S, self._rng)
        noted_at = trio.current_time()
        try:
            while True:
                before = len(self._returns.to_scan())
                done = await self._patiently(self._check_returned, "bookies that return")
                if trio.current_time() >= noted_at + NOTE_INTERVAL_S:
                    noted_at = trio.current_time()
                    await self._patiently(self._note_steady, "notes")
                if before:
                    backoff.reset()
                pause_s = noted_at + NOTE_INTERVAL_S - trio.current_time() if done else backoff.next()
                with trio.move_on_after(pause_s):
                    await first_change(watches)
                    backoff.reset()
        finally:
            for watch in watches:
                watch.close()

    async def _check_returned(self) -> bool:
        """Run one round; return whether more are unnecessary."""
        returns = self._returns
        await self._look_who_is_there()
        scanned = returns.to_scan()
        if scanned:
            log.info("bookies returned, comparing their ledgers with their lists", bookies=",".join(scanned))
            open_ledgers: dict[str, set[int]] = {bookie_id: set() for bookie_id in scanned}

            async def look(ledger_id: int) -> None:
                for bookie_id in await self._compare(ledger_id, frozenset(scanned), changed_only=True):
                    open_ledgers[bookie_id].add(ledger_id)

            await for_each(
                await all_ids(self._ledgers), look, at_once=self._at_once, name="ledgers of bookies that return"
            )
            for bookie_id, each in scanned.items():
                each.open_ledgers = open_ledgers[bookie_id]

        async def look_again(item: tuple[int, frozenset[str]]) -> None:
            ledger_id, bookies = item
            left = await self._compare(ledger_id, bookies)
            for bookie_id in bookies - left:
                each = returns.under_way.get(bookie_id)
                if each is not None and each.open_ledgers is not None:
                    each.open_ledgers.discard(ledger_id)

        if not scanned:
            again = returns.to_look_at_again()
            await for_each(again.items(), look_again, at_once=self._at_once, name="open ledgers of bookies that return")
        await self._look_who_is_there()
        for bookie_id in returns.done():
            await self._note(bookie_id)
            self._stats.returned_bookies += 1
            log.info("returned bookie has all its copies, or they are marked", bookie=bookie_id)
        return not returns.under_way

    async def _look_who_is_there(self) -> None:
        self._returns.registered_now(trio.current_time(), await self._registrations.sessions())

    async def _compare(self, ledger_id: int, bookies: frozenset[str], *, changed_only: bool = False) -> frozenset[str]:
        """Return those of the bookies for which the ledger must be compared again."""
        try:
            stored = await self._ledgers.read_stored(ledger_id)
        except (NoSuchLedgerError, MalformedMetadataError, UnsupportedLayoutError):
            return frozenset()
        metadata, returns = stored.value, self._returns
        named = {each for fragment in metadata.fragments for each in fragment.bookies} & bookies
        if changed_only:
            under_way = returns.under_way
            named = {each for each in named if each in under_way and under_way[each].concerns(stored.modified_ms)}
        if not named or metadata.ack_quorum >= metadata.write_quorum:
            return frozenset()
        if await self._copies.look(ledger_id, metadata, named) is Compared.UNANSWERED:
            return frozenset(named)
        if metadata.state is LedgerState.CLOSED:
            return frozenset()
        now = trio.current_time()
        written = named.intersection(metadata.fragments[-1].bookies)
        return frozenset(each for each in written if not returns.is_settled(each, now))

    # --- notes on sessions

    async def _note_steady(self) -> bool:
        await self._look_who_is_there()
        for bookie_id in self._returns.steady():
            await self._note(bookie_id)
        return True

    async def _note(self, bookie_id: str) -> None:
        """Store a note that the bookie had all its copies until now, in its current session."""
        session = self._returns.registered.get(bookie_id)
        if session is None:
            return
        path = paths.join(self._sessions_folder, bookie_id)
        try:
            await self._store.create(path, b"%d" % session)
        except NodeExistsError:
            await self._store.put(path, b"%d" % session, ANY_VERSION)
        node = await self._store.get(path)
        self._returns.noted(bookie_id, SessionNote(session, None if node is None else node.modified_ms))

    # --- notes of writers

    async def _follow_writers(self) -> None:
        watch = self._store.watch(unacked.folder(self._root))
        backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S, self._rng)
        try:
            while True:
                if await self._patiently(self._check_noted, "ledgers that writers noted"):
                    await watch.next()
                    backoff.reset()
                else:
                    with trio.move_on_after(backoff.next()):
                        await watch.next()
                await trio.sleep(GATHER_S)
        finally:
            watch.close()

    async def _check_noted(self) -> bool:
        """Check every noted ledger; return whether no note is left."""
        left = 0

        async def look(name: str) -> None:
            nonlocal left
            left += not await self._check_note(name)

        names = await self._store.children(unacked.folder(self._root))
        await for_each(names, look, at_once=self._at_once, name="ledgers that writers noted")
        return not left

    async def _check_note(self, name: str) -> bool:
        """Check one ledger; return whether its note is deleted."""
        path = paths.join(unacked.folder(self._root), name)
        ledger_id = unacked.ledger_of(name)
        node = await self._store.get(path)
        if node is None or ledger_id is None:
            return True
        try:
            metadata = await self._ledgers.read_metadata(ledger_id)
        except (NoSuchLedgerError, MalformedMetadataError, UnsupportedLayoutError):
            pass
        else:
            if not _covers(metadata, node.value):
                return False
            # A bookie that is not registered is checked when it returns, or is replaced.
            registered = (await self._registrations.sessions()).keys()
            if await self._copies.look(ledger_id, metadata, registered) is Compared.UNANSWERED:
                return False
        self._stats.noted_ledgers += 1
        try:
            await self._store.delete(path, node.version)
        except NoNodeError:
            pass
        except BadVersionError:
            return False
        return True


def _covers(metadata: LedgerMetadata, note: bytes) -> bool:
    """Return whether the entries that a note is about are in closed fragments."""
    if metadata.state is LedgerState.CLOSED:
        return True
    try:
        before = unacked.decode(note)
    except MalformedMetadataError:
        before = unacked.WHOLE
    return before != unacked.WHOLE and metadata.fragments[-1].first_entry_id >= before

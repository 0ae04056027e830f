"""Adds of all sessions: they go into the write cache and the journal, or wait until both have room.

    session -> checks -> write cache -> journal -> (group synced) -> `done`, and at the end of the pass the answers
               no room -> wait in order of arrival -> room: start again at the checks | too late: refused

A waiting add is neither stored nor checked. A fence that arrives in the meantime rejects it. While one add waits, every
later add waits too, so adds keep their order of arrival. A session with many waiting bytes is paused (session.py) if it
has a shell that can pause it. The total of waiting bytes is bounded; an add above the bound is refused at once.

Source: BookKeeper's SingleDirectoryDbLedgerStorage.triggerFlushAndAddEntry (waits up to dbStorage_maxThrottleTimeMs for
the flush) and journalMaxMemorySizeMb (blocks the adding thread).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

import trio

from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.disks.watch import DiskWatch
from bookie.errors import BookieError, WriteCacheFullError
from bookie.journal.writer import Journal
from bookie.last_confirmed import LacTable
from bookie.requests import lac_of_entry
from bookie.stats import BookieStats
from bookie.timers import Timer, Timers
from quire.service.measuring.summaries import Times
from quire.wire.bookkeeper.run import Run
from quire.wire.bookkeeper.v2 import HIGH_PRIORITY, RECOVERY_ADD, Rc

AddDone: TypeAlias = Callable[[Run, Rc], None]


def may_add(
    known_key: bytes | None, key: bytes, fenced: bool, read_only: bool, flags: int, *, journal_failed: bool
) -> Rc:
    """Check whether this run may be added. `known_key` is None if the ledger is new here.

    A fenced ledger accepts only adds of recovery. Room is not checked here: a run that may be added waits for it.
    """
    if read_only and not flags & HIGH_PRIORITY:
        return Rc.READ_ONLY
    if known_key is not None and known_key != key:
        return Rc.UNAUTHORIZED
    if fenced and not flags & RECOVERY_ADD:
        return Rc.FENCED
    return Rc.IO if journal_failed else Rc.OK


class AnsweringSession(Protocol):
    """The part of a session that passes use: its answers leave at the end of one."""

    is_dirty: bool
    """True from `Passes.flush_later` to `flush`."""

    def flush(self) -> None:
        """Write the gathered answers."""


class Passes:
    """Passes of the journal, the read workers and the timers: the answers of each leave in one write per session."""

    __slots__ = ("_dirty", "on_end")

    def __init__(self) -> None:
        self._dirty: list[AnsweringSession] = []
        self.on_end: Callable[[], None] | None = None
        """Called at the end of a pass, when its answers are sent."""

    def flush_later(self, session: AnsweringSession) -> None:
        """Send the session's answers at the end of this pass."""
        if not session.is_dirty:
            session.is_dirty = True
            self._dirty.append(session)

    def end(self) -> None:
        """End a pass: send what it answered."""
        dirty, self._dirty = self._dirty, []
        for session in dirty:
            session.flush()
        if self.on_end is not None:
            self.on_end()


class Adder(Protocol):
    """The part of a session that adds use."""

    adds_waiting: int
    """Bytes of the session's adds that wait for room. Changed only in this module."""

    def adds_left(self) -> None:
        """Called when fewer of the session's adds wait than before."""


class AddingBookie(Protocol):
    """The part of the bookie that adds use."""

    @property
    def storage(self) -> DbLedgerStorage: ...

    @property
    def journal(self) -> Journal: ...

    @property
    def disks(self) -> DiskWatch: ...

    @property
    def lacs(self) -> LacTable: ...

    @property
    def timers(self) -> Timers: ...

    @property
    def stats(self) -> BookieStats: ...

    @property
    def passes(self) -> Passes: ...

    @property
    def read_only(self) -> bool:
        """True if no adds are accepted, except those of high priority."""

    def request_flush(self) -> None:
        """Begin a checkpoint soon."""


class Add(NamedTuple):
    """A run being added.

    `done` is called once, on the loop, with Rc.OK when the run is in the journal; it must not raise.
    """

    run: Run
    deferred: bool
    done: AddDone
    adder: Adder


class AddBounds(NamedTuple):
    """Bounds of adds.

    `waiting_max`: bytes that may wait; `wait_s`: seconds an add may wait before it is refused. `entries_waiting_max`,
    `in_progress_max`: entries that may wait, and that may be on their way into the journal; 0: any number.
    """

    waiting_max: int
    wait_s: float
    entries_waiting_max: int = 0
    in_progress_max: int = 0

    def share(self, count: int) -> AddBounds:
        """Return the bounds of one of `count` queues, which together have these.

        >>> AddBounds(100, 1.5, 1, 9).share(4)
        AddBounds(waiting_max=25, wait_s=1.5, entries_waiting_max=1, in_progress_max=3)
        """
        return AddBounds(
            self.waiting_max // count,
            self.wait_s,
            -(-self.entries_waiting_max // count),
            -(-self.in_progress_max // count),
        )


class Adds:
    """Adds in progress and waiting, one object per bookie, or per pair of directory and journal.

    `journaled`: False answers adds that are in the write cache (journalWriteData). Those of recovery are journaled even
    so: metadata that names the bookie follows them, and a bookie that lost them would deny them.
    """

    def __init__(self, bookie: AddingBookie, bounds: AddBounds, *, journaled: bool = True) -> None:
        self._journaled = journaled
        self._bookie = bookie
        self._waiting: deque[tuple[float, Add]] = deque()
        """Adds with the times of their arrival."""
        self.waits, self.waits_refused = Times(), Times()
        """Times of entries that waited for room, in milliseconds; `_refused`: of those that got none."""
        self._timer: Timer | None = None
        self._wait_s = bounds.wait_s
        self._entries_waiting_max = bounds.entries_waiting_max
        self._in_progress_max = bounds.in_progress_max
        self.waiting_max = bounds.waiting_max
        self.waiting_bytes = 0
        self.waiting_entries = 0
        self.in_progress = 0
        """Entries given to the journal and not yet answered."""

    def add(self, add: Add) -> None:
        """Carry out an add now, or when there is room, or refuse it.

        `done` receives the outcome, perhaps before this returns.
        """
        if not self._waiting and self._carried_out(add):
            return
        size = add.run.size
        entries = self.waiting_entries + add.run.count
        if self.waiting_bytes + size > self.waiting_max or 0 < self._entries_waiting_max < entries:
            self._refused(add, Rc.TOO_MANY_REQUESTS)
            return
        self.waiting_bytes += size
        self.waiting_entries = entries
        add.adder.adds_waiting += size
        self._waiting.append((trio.current_time(), add))
        if self._timer is None:
            self._set_timer()

    @property
    def queues(self) -> tuple[Adds, ...]:
        """Return the queues of all directories and journals: this one."""
        return (self,)

    def room_made(self) -> None:
        """Carry out waiting adds, in order, as far as there is room. Called when room may have been freed."""
        waiting = self._waiting
        now = trio.current_time()
        while waiting and self._carried_out(waiting[0][1]):
            arrived_at, add = waiting.popleft()
            self.waits.observe(1000 * (now - arrived_at), add.run.count)
            self._left(add)
        if self._timer is not None and not waiting:
            self._timer.cancel()
            self._timer = None

    def journal_pass_done(self) -> None:
        """End a pass of the journal, which has called `done` for the runs that it wrote, and now has room."""
        if self.waiting_bytes:
            self.room_made()
        self._bookie.passes.end()

    def refuse_waiting(self, rc: Rc = Rc.TOO_MANY_REQUESTS) -> None:
        """Refuse all waiting adds. Called when the bookie stops, or their directory cannot be used."""
        self._expire(float("inf"), rc)

    def _carried_out(self, add: Add) -> bool:
        """Return False if there is no room; otherwise the add is in progress, or refused."""
        run, deferred, done, _ = add
        ledger_id, key, flags = run.ledger_id, run.key, run.flags
        bookie = self._bookie
        storage = bookie.storage
        journal = bookie.journal
        known_key, fenced = storage.key_and_fence(ledger_id)
        disks = bookie.disks
        allowed = flags if disks.takes_urgent else flags & ~HIGH_PRIORITY
        rc = may_add(known_key, key, fenced, bookie.read_only, allowed, journal_failed=journal.failed is not None)
        if rc is Rc.OK and not flags & HIGH_PRIORITY:
            rooms = disks.rooms
            room = rooms[disks.directory_of(ledger_id) if len(rooms) > 1 else 0]
            if not room.take(run.size):
                disks.ran_out()
                if not room.reason:
                    return False  # until the disks are measured
                rc = Rc.READ_ONLY
        if rc is not Rc.OK:
            self._refused(add, rc)
            return True
        if not journal.has_room(run.size) or ledger_id in storage.held_ledgers:
            return False
        if 0 < self._in_progress_max < self.in_progress + run.count and self.in_progress:
            return False
        try:
            storage.add(run)
        except WriteCacheFullError:
            bookie.request_flush()
            return False
        if known_key is None:
            storage.set_master_key(ledger_id, key)
        if self._journaled or flags & RECOVERY_ADD:
            self.in_progress += run.count
            journal.append(run, partial(self._ended, done, run), key, deferred)
        else:
            done(run, Rc.OK)
        stats = bookie.stats
        stats.adds += run.count
        stats.add_bytes += run.size
        if ledger_id in bookie.lacs.followed:
            bookie.lacs.raised(ledger_id, lac_of_entry(run.entry(run.last)))
        return True

    def _refused(self, add: Add, rc: Rc) -> None:
        stats = self._bookie.stats
        stats.adds_refused += add.run.count
        if rc is Rc.TOO_MANY_REQUESTS:
            stats.adds_rejected += add.run.count
        add.done(add.run, rc)

    def _left(self, add: Add) -> None:
        size = add.run.size
        self.waiting_bytes -= size
        self.waiting_entries -= add.run.count
        add.adder.adds_waiting -= size
        add.adder.adds_left()

    def _ended(self, done: AddDone, run: Run, error: BookieError | None) -> None:
        """Report the outcome of a run: the journal has synced it, or has failed to."""
        self.in_progress -= run.count
        done(run, Rc.OK if error is None else Rc.IO)

    # --- refused and failed adds

    def _set_timer(self) -> None:
        self._timer = self._bookie.timers.at(self._waiting[0][0] + self._wait_s, self._overdue)

    def _overdue(self) -> None:
        self._timer = None
        self._expire(trio.current_time())
        if self._waiting:
            self._set_timer()

    def _expire(self, now: float, rc: Rc = Rc.TOO_MANY_REQUESTS) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] + self._wait_s <= now:
            arrived_at, add = waiting.popleft()
            self.waits_refused.observe(1000 * (trio.current_time() - arrived_at), add.run.count)
            self._refused(add, rc)
            self._left(add)

"""Adds over several directories: each pair of directory and journal has a queue of its own, an `Adds`.

An add that waits for room holds up later adds of its directory and journal, and no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from bookie.adds import Add, AddBounds, AddingBookie, Adds, Passes
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.directories.health import DirectoryHealth
from bookie.directories.routes import Routes
from bookie.disks.watch import DiskWatch
from bookie.journal.writer import Journal
from bookie.last_confirmed import LacTable
from bookie.stats import BookieStats
from bookie.timers import Timers
from quire.wire.bookkeeper.v2 import Rc


class SpreadBookie(Protocol):
    """The part of the bookie that adds over several directories use."""

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
    def read_only(self) -> bool: ...

    def request_flush(self, directory: int | None = None) -> None: ...


class _Place:
    """The bookie as adds of one directory and journal see it."""

    def __init__(self, bookie: SpreadBookie, storage: DbLedgerStorage, journal: Journal, directory: int) -> None:
        self._bookie = bookie
        self.storage = storage
        self.journal = journal
        self._directory = directory
        self.disks = bookie.disks
        self.lacs = bookie.lacs
        self.timers = bookie.timers
        self.stats = bookie.stats
        self.passes = bookie.passes

    @property
    def read_only(self) -> bool:
        return self._bookie.read_only

    def request_flush(self) -> None:
        self._bookie.request_flush(self._directory)


class SpreadAdds:
    """As `Adds`. `bounds` are those of all queues together."""

    def __init__(
        self,
        bookie: SpreadBookie,
        storages: Sequence[DbLedgerStorage],
        journals: Sequence[Journal],
        routes: Routes,
        health: DirectoryHealth,
        bounds: AddBounds,
    ) -> None:
        self._bookie = bookie
        self._routes = routes
        self._health = health
        self.waiting_max = bounds.waiting_max
        share = bounds.share(len(storages) * len(journals))

        def make(directory: int, journal: int) -> Adds:
            place: AddingBookie = _Place(bookie, storages[directory], journals[journal], directory)
            return Adds(place, share)

        self._queues = [[make(i, j) for j in range(len(journals))] for i in range(len(storages))]

    def add(self, add: Add) -> None:
        """As `Adds.add`."""
        ledger_id = add.run.ledger_id
        directory = self._routes.directory(ledger_id)
        if self._health.reasons[directory]:
            self._bookie.stats.adds_refused += add.run.count
            add.done(add.run, Rc.IO)
        else:
            self._queues[directory][self._routes.journal(ledger_id)].add(add)

    @property
    def queues(self) -> tuple[Adds, ...]:
        """Return the queues of all directories and journals."""
        return tuple(queue for queues in self._queues for queue in queues)

    @property
    def waiting_entries(self) -> int:
        """Return the entries of all adds that wait."""
        return sum(queue.waiting_entries for queues in self._queues for queue in queues)

    @property
    def in_progress(self) -> int:
        """Return the entries given to the journals and not yet answered."""
        return sum(queue.in_progress for queues in self._queues for queue in queues)

    @property
    def waiting_bytes(self) -> int:
        """Return the bytes of all adds that wait."""
        return sum(queue.waiting_bytes for queues in self._queues for queue in queues)

    def room_made(self) -> None:
        """As `Adds.room_made`."""
        for queues in self._queues:
            for queue in queues:
                if queue.waiting_bytes:
                    queue.room_made()

    def journal_pass_done(self) -> None:
        """As `Adds.journal_pass_done`."""
        self.room_made()
        self._bookie.passes.end()

    def refuse_waiting(self) -> None:
        """As `Adds.refuse_waiting`."""
        for queues in self._queues:
            for queue in queues:
                queue.refuse_waiting()

    def refuse_waiting_of(self, directory: int) -> None:
        """Refuse the adds that wait for a directory that cannot be used."""
        for queue in self._queues[directory]:
            queue.refuse_waiting(Rc.IO)


LedgerAdds: TypeAlias = Adds | SpreadAdds
"""Adds of a bookie, for its only directory or for several."""

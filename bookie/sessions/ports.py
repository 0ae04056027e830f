"""Protocols: the part of the bookie that sessions use, and the part of a session that its helpers use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from bookie.adds import AddDone, Passes
from bookie.config import BookieConfig
from bookie.directories.adds import LedgerAdds
from bookie.directories.journals import LedgerJournal
from bookie.directories.storage import LedgerStorage
from bookie.journal.group_writer import OnDurable
from bookie.last_confirmed import LacTable
from bookie.reads import ReadLimit
from bookie.stats import BookieStats
from bookie.timers import Timers
from quire.service.neighbours.rare_lines import RareLines
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.run import Run
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import World

T = TypeVar("T")


class SessionBookie(Protocol):
    """The part of the bookie that a session uses."""

    long_polls: int
    """Number of reads of all sessions waiting for a LAC to move."""

    @property
    def world(self) -> World: ...

    @property
    def config(self) -> BookieConfig: ...

    @property
    def storage(self) -> LedgerStorage: ...

    @property
    def journal(self) -> LedgerJournal: ...

    @property
    def adds(self) -> LedgerAdds: ...

    @property
    def passes(self) -> Passes: ...

    @property
    def lacs(self) -> LacTable: ...

    @property
    def timers(self) -> Timers: ...

    @property
    def stats(self) -> BookieStats: ...

    @property
    def rare_lines(self) -> RareLines: ...

    def fence(self, ledger_id: int, key: bytes | None, done: Callable[[Rc], None]) -> None:
        """Refuse further adds to the ledger except recovery's. `done` is called when that is durable, or refused."""

    def force(self, ledger_id: int, done: OnDurable) -> None:
        """Call `done` when all that was acknowledged of the ledger is on disk. JournalFailedError: it is not called."""

    def write_lac(self, ledger_id: int, key: bytes, package: bytes, on_durable: OnDurable) -> Rc:
        """Store an explicit LAC. `on_durable` is called only if Rc.OK is returned."""

    def read_by_worker(
        self, job: Callable[[], Any], done: Callable[[Any, Rc], None], ledger_id: int, *, urgent: bool, count: int = 1
    ) -> bool:
        """Run a job that counts as `count` reads of the ledger; return False if too many are in progress."""

    @property
    def read_limit(self) -> ReadLimit: ...

    @property
    def reads_in_flight(self) -> int:
        """Return the number of reads that workers hold and have not answered."""

    def read_room(self, ledger_id: int, *, urgent: bool) -> int:
        """Return the number of reads of the ledger that `read_by_worker` would accept now."""

    def disk_space(self) -> tuple[int, int]:
        """Return the size in bytes of the entry logs' file system, and its free bytes. Blocking."""


class Version3Session(Protocol):
    """The part of a session that version 3 and its long polls use."""

    @property
    def bookie(self) -> SessionBookie: ...

    out: list[Buffer]
    """Answers that leave with the next flush, whole frames."""

    closed: bool
    """True if nothing is answered any more."""

    def store(self, run: Run, done: AddDone, *, deferred: bool = False) -> None:
        """Add a run to write cache and journal when there is room. `done` is called once, with the outcome."""

    def put(self, parts: Sequence[Buffer], size: int) -> None:
        """Answer with a whole frame, which carries `size` bytes of entries."""

    def by_worker(self, job: Callable[[], T], done: Callable[[T | None, Rc], None], ledger_id: int, flags: int) -> Rc:
        """Run `job`, which reads the ledger, in a worker.

        If it returns Rc.OK, `done` is called with its result, otherwise with None and a code.
        """

    def flush_later(self) -> None:
        """Write the gathered answers at the end of this pass."""

    def flush_if_idle(self) -> None:
        """Write the gathered answers, unless a pass of this session is in progress."""

    def not_version_3(self, position: int) -> None:
        """Treat the last frame from `position` on, and all that follow, as version 2."""

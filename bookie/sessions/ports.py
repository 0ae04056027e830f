"""Protocols: the bookie as its sessions see it, and a session as its parts see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from bookie.adds import AddDone, Adds
from bookie.config import BookieConfig
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.journal.group_writer import OnDurable
from bookie.journal.writer import Journal
from bookie.last_confirmed import LacTable
from bookie.run import Run
from bookie.stats import BookieStats
from bookie.timers import Timers
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import World

T = TypeVar("T")

PLUGIN: Final = "AuthDisabledPlugin"
"""Name of the authentication plugin in answers to AUTH: there is none."""


class AnsweringSession(Protocol):
    """A session, as the bookie sees it: its answers leave at the end of a pass."""

    is_dirty: bool
    """True from `SessionBookie.flush_later` to `flush`."""

    def flush(self) -> None:
        """Write the answers that have gathered."""


class SessionBookie(Protocol):
    """The bookie, as a session sees it."""

    long_polls: int
    """Reads of all sessions that wait for a LAC to move."""

    @property
    def world(self) -> World: ...

    @property
    def config(self) -> BookieConfig: ...

    @property
    def storage(self) -> DbLedgerStorage: ...

    @property
    def journal(self) -> Journal: ...

    @property
    def adds(self) -> Adds: ...

    @property
    def lacs(self) -> LacTable: ...

    @property
    def timers(self) -> Timers: ...

    @property
    def stats(self) -> BookieStats: ...

    def flush_later(self, session: AnsweringSession) -> None:
        """Send the session's answers when this pass, the journal's or the readers', is over."""

    def fence(self, ledger_id: int, key: bytes | None, done: Callable[[Rc], None]) -> None:
        """Let the ledger take no more adds but recovery's. `done` is called when that is durable, or refused."""

    def write_lac(self, ledger_id: int, key: bytes, package: bytes, on_durable: OnDurable) -> Rc:
        """Keep an explicit LAC. `on_durable` is called only if Rc.OK is returned."""

    def read_by_worker(
        self, job: Callable[[], Any], done: Callable[[Any, Rc], None], *, urgent: bool = False, count: int = 1
    ) -> bool:
        """Run a job that stands for `count` reads; False if too many are on their way."""

    def read_room(self, *, urgent: bool) -> int:
        """Reads that `read_by_worker` would take now."""

    def disk_space(self) -> tuple[int, int]:
        """Bytes of the file system of the entry logs, and how many of them are free. Blocking."""


class Session(Protocol):
    """A session, as version 3 and its long polls see it."""

    @property
    def bookie(self) -> SessionBookie: ...

    out: list[Buffer]
    """Answers that leave with the next flush, whole frames."""

    closed: bool
    """Nothing is answered any more."""

    def store(self, run: Run, key: bytes, flags: int, done: AddDone, *, deferred: bool = False) -> None:
        """Put a run into write cache and journal, when there is room. `done` is called once, with the outcome."""

    def put(self, parts: Sequence[Buffer], size: int) -> None:
        """Answer with a whole frame, which carries `size` bytes of entries."""

    def by_worker(self, job: Callable[[], T], done: Callable[[T | None, Rc], None], flags: int) -> Rc:
        """Have a worker run `job`. If that returns Rc.OK, `done` is called with the result, or with None and a code."""

    def flush_later(self) -> None:
        """Write the answers that have gathered at the end of this pass."""

    def flush_if_idle(self) -> None:
        """Write the answers that have gathered, unless a pass of this session is under way."""

    def not_version_3(self, position: int) -> None:
        """Take the last frame from `position` on as version 2, and all that follow."""

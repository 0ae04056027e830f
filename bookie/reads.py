"""Reads that need the disk: a worker takes all gathered reads and answers them in one pass of the loop.

Tasks and thread switches are per batch, not per read: a worker is a lane. The first worker serves alone while it can. A
batch large enough for sequential disk waits to matter wakes the others too. A session with many single reads submits
them in shares, each one job, because waking a thread costs as much as a read from memory.

While reads find their files in the page cache, one worker serves all. No read waits for a disk, and concurrent Python
threads only compete for the interpreter (43,000 reads a second by one, 19,000 by eight). The number of sectors that
batches read from disk decides. Large reads compete for it in the same way: from a fast disk one worker reads as much as
the loop can answer, so there are only as many workers as it takes to read ENOUGH_SECTORS_PER_S.

Bounded: with `waiting_max` reads waiting or being read, the next one is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import trio

from bookie.errors import BookieError, DirectoryUnavailableError
from bookie.requests import rc_of
from quire.service.log import get_logger
from quire.service.measuring.summaries import Times
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import Lane, Offload

log = get_logger(__name__)

T = TypeVar("T")

SHARE: Final = 16
"""Reads given to a worker before the next worker is used too."""
SECTORS_PER_READ: Final = 1.0
"""Average sectors per read from which on workers share: then one read in eight to sixteen waits for a disk."""
SECTORS_OF_SHARE: Final = 32
"""Average sectors per read up to which a worker gets SHARE reads, two to four pages each; fewer of larger ones, such as
batch reads, which would otherwise all wait for one disk read after the other in one worker."""
LARGE_SECTORS: Final = 128
"""Average sectors per read from which on reads count as large: 64 KB."""
ENOUGH_SECTORS_PER_S: Final = 400_000
"""Sectors that workers of large reads shall read together in a second, 200 MB, by the time that each has taken lately.
A disk that needs 10 ms for a piece of 256 KB gets eight workers."""
MEMORY: Final = 128
"""Number of reads over which the average is taken."""
_MEMORY_OF_LARGE: Final = 16
"""The same for the time that large reads take."""


class Read(NamedTuple):
    """Read job.

    `job` blocks and returns the result that `done` gets with Rc.OK; if it raises, `done` gets None and another code. It
    counts as `weight` reads.
    """

    job: Callable[[], Any]
    done: Callable[[Any, Rc], None]
    weight: int
    submitted_at: float
    """Time of the event loop."""


class Paused(Protocol):
    """The part of a session that waits for fewer reads."""

    @property
    def on_room(self) -> Callable[[], None] | None:
        """Called when a paused session may be able to continue."""


class ReadLimit:
    """Bound of the reads of all sessions that may be in progress: a session that has more is paused.

    Source: BookKeeper's maxReadsInProgressLimit, a semaphore for which the thread of a connection waits.
    """

    def __init__(self, maximum: int) -> None:
        """`maximum`: 0: no bound."""
        self._maximum = maximum
        self._paused: dict[Paused, bool] = {}
        """Sessions to call; True: it waits for fewer reads."""

    def is_reached(self, in_progress: int) -> bool:
        return 0 < self._maximum <= in_progress

    def pause(self, session: Paused, *, waits: bool = True) -> None:
        """Call the session's `on_room` whenever reads have ended, until `forget`.

        `waits`: False if it is paused for another reason, but may not go on while there are too many.
        """
        self._paused[session] = waits

    @property
    def paused(self) -> int:
        """Return the number of sessions that wait for fewer reads."""
        return sum(self._paused.values())

    def forget(self, session: Paused) -> None:
        self._paused.pop(session, None)

    def freed(self) -> None:
        """Note that reads have ended."""
        for session in list(self._paused):
            if session.on_room is not None:
                session.on_room()


class ReadWorkers:
    """Read workers.

    `after` is called on the loop when the answers of a batch were delivered. `sectors_read` counts, for the calling
    thread, as `Disk.sectors_read` does.
    """

    def __init__(
        self,
        offload: Offload,
        *,
        name: str,
        workers: int,
        waiting_max: int,
        after: Callable[[], None],
        sectors_read: Callable[[], int | None],
    ) -> None:
        self._offload = offload
        self._name = name
        self._workers = workers
        self._after = after
        self._lanes: list[Lane[Read]] = []
        self._loads: list[int] = []
        self._closed = False
        self._sectors_read = sectors_read
        self.now: Callable[[], float] = trio.lowlevel.current_clock().current_time
        """Clock of the event loop, in seconds; it is read in the workers' threads too."""
        self._sectors_per_read = SECTORS_PER_READ
        """Recent average."""
        self._s_per_sector = 0.0
        """The same of the time a worker takes for a sector of a large read, in seconds; 0 before there was one."""
        self.most_workers: Callable[[float], int] = self._all_workers
        """Returns how many workers may read now; called with the recent average of sectors per read."""
        self.waiting_max = waiting_max
        self.waiting = 0
        """Reads not answered yet."""
        self.times, self.times_failed = Times(), Times()
        """Times of reads that were given to workers, in milliseconds; failed ones include entries that are not here."""

    @property
    def all(self) -> tuple[ReadWorkers, ...]:
        """Return the workers of all directories: these."""
        return (self,)

    def of(self, ledger_id: int) -> ReadWorkers:
        """Return the workers of the ledger's directory."""
        return self

    @property
    def room(self) -> int:
        """Return the number of reads that would be accepted now."""
        return 0 if self._closed else max(0, self.waiting_max - self.waiting)

    def submit(self, job: Callable[[], Any], done: Callable[[Any, Rc], None], count: int = 1) -> bool:
        """Submit a job; return False if there is no room for its reads.

        `done` is called on the loop and must not raise.
        """
        if count > self.room:
            return False
        self.waiting += count
        index = self._choose()
        self._loads[index] += count
        self._lanes[index].put(Read(job, done, count, trio.current_time()))
        return True

    def _all_workers(self, sectors_per_read: float) -> int:
        return self._workers

    def _enough_workers(self) -> int:
        """Return how many workers are of use."""
        if self._sectors_per_read < LARGE_SECTORS:
            return self._workers
        return max(1, ceil(ENOUGH_SECTORS_PER_S * self._s_per_sector))

    def _choose(self) -> int:
        """Choose the first idle worker, a new one if all are busy, or the least busy one if there are as many as are of
        use, or allowed: beside adds perhaps fewer (directories/beside_adds.py).
        """
        loads = self._loads
        if loads and self._sectors_per_read < SECTORS_PER_READ:
            return 0
        share = min(SHARE, max(1, int(SHARE * SECTORS_OF_SHARE / max(self._sectors_per_read, SECTORS_PER_READ))))
        most = min(self._workers, self.most_workers(self._sectors_per_read), self._enough_workers())
        for index, load in enumerate(loads[:most]):
            if load < share:
                return index
        if len(loads) < most:
            index = len(loads)
            loads.append(0)
            name = f"{self._name} {index}"
            self._lanes.append(self._offload.lane(name, self._read_all, partial(self._answered, index)))
            return index
        return loads.index(min(loads[:most]))

    def _answered(
        self,
        index: int,
        reads: list[Read],
        found: tuple[list[tuple[Any, Rc]], int | None, float] | None,
        error: BaseException | None,
    ) -> None:
        count = sum([read.weight for read in reads])
        self._loads[index] -= count
        self.waiting -= count
        if found is None:
            log.error("a read failed", reason=repr(error))
            found = [(None, Rc.IO)] * len(reads), None, 0.0
        results, sectors, seconds = found
        if sectors is not None:
            self._sectors_per_read += (sectors / count - self._sectors_per_read) * count / (count + MEMORY)
            if sectors >= LARGE_SECTORS * count:
                self._s_per_sector += (seconds / sectors - self._s_per_sector) * count / (count + _MEMORY_OF_LARGE)
        now = trio.current_time()
        for read, (result, rc) in zip(reads, results, strict=True):
            (self.times if rc is Rc.OK else self.times_failed).observe(1000 * (now - read.submitted_at), read.weight)
            read.done(result, rc)
        self._after()

    def _read_all(self, reads: list[Read]) -> tuple[list[tuple[Any, Rc]], int | None, float]:
        """Run the jobs in a worker's thread; return answers, the sectors read for them, if known, and the time taken
        in seconds."""
        began, before = self.now(), self._sectors_read()
        results = [attempt(read.job) for read in reads]
        after = self._sectors_read()
        sectors = after - before if after is not None and before is not None else None
        return results, sectors, self.now() - began

    async def aclose(self) -> None:
        """Accept no more reads; wait for those that have begun."""
        self._closed = True
        for lane in self._lanes:
            await lane.aclose()


def attempt(job: Callable[..., T], *args: Any) -> tuple[T | None, Rc]:
    """Return the job's result with Rc.OK, or None with the code of its exception. Blocking, if the job is."""
    try:
        return job(*args), Rc.OK
    except (BookieError, OSError) as error:
        rc = rc_of(error)
        if rc is Rc.IO and not isinstance(error, DirectoryUnavailableError):  # that was logged once
            log.error("read failed", reason=str(error))
        return None, rc

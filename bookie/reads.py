"""Reads that need the disk: workers that take everything that has gathered, and answer it in one pass of the loop.

No task and no way to a thread and back per read, but per batch: a worker is a lane. The first worker alone serves what one
can; a batch of so many reads that waiting for the disk one after the other would tell wakes the others too. Who has many
single reads submits them by shares, each one job: waking a thread costs as much as a read from memory.

As long as reads find their files in the page cache, one worker serves all: nobody waits for a disk, and threads that run
Python at once only take the interpreter from each other (43,000 reads a second by one, 19,000 by eight). The sectors that
batches had to be read from disks tell.

Bounded: with `waiting_max` reads waiting or being read, the next one is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from bookie.errors import BookieError
from bookie.requests import rc_of
from quire.service.log import get_logger
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import Lane, Offload

log = get_logger(__name__)

T = TypeVar("T")

SHARE: Final = 16
"""Reads that a worker is given before the next one is asked too."""
SECTORS_PER_READ: Final = 1.0
"""On average, from which on the workers share: one read in eight to sixteen waits for a disk then."""
MEMORY: Final = 128
"""Reads that the average looks back on."""


class Read(NamedTuple):
    """`job` blocks, and answers what `done` takes with Rc.OK; None and another code if it raised. It counts for `weight` reads."""

    job: Callable[[], Any]
    done: Callable[[Any, Rc], None]
    weight: int


class ReadWorkers:
    """`after` is called on the loop when the answers of a batch were handed out. `sectors_read` counts, for the thread that
    calls it, as `Disk.sectors_read` does."""

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
        self._work = partial(_read_all, sectors_read)
        self._sectors_per_read = SECTORS_PER_READ
        """On average, of late."""
        self.waiting_max = waiting_max
        self.waiting = 0
        """Reads not answered yet."""

    @property
    def room(self) -> int:
        """Reads that would be taken now."""
        return 0 if self._closed else max(0, self.waiting_max - self.waiting)

    def submit(self, job: Callable[[], Any], done: Callable[[Any, Rc], None], count: int = 1) -> bool:
        """False if there is no room for so many reads. `done` is called on the loop, and must not raise."""
        if count > self.room:
            return False
        self.waiting += count
        index = self._choose()
        self._loads[index] += count
        self._lanes[index].put(Read(job, done, count))
        return True

    def _choose(self) -> int:
        """The first worker that is not busy, a new one if all are; the least busy if there may be no more."""
        loads = self._loads
        if loads and self._sectors_per_read < SECTORS_PER_READ:
            return 0
        for index, load in enumerate(loads):
            if load < SHARE:
                return index
        if len(loads) < self._workers:
            index = len(loads)
            loads.append(0)
            name = f"{self._name} {index}"
            self._lanes.append(self._offload.lane(name, self._work, partial(self._answered, index)))
            return index
        return loads.index(min(loads))

    def _answered(
        self,
        index: int,
        reads: list[Read],
        found: tuple[list[tuple[Any, Rc]], int | None] | None,
        error: BaseException | None,
    ) -> None:
        count = sum([read.weight for read in reads])
        self._loads[index] -= count
        self.waiting -= count
        if found is None:
            log.error("a read failed", reason=repr(error))
            found = [(None, Rc.IO)] * len(reads), None
        results, sectors = found
        if sectors is not None:
            self._sectors_per_read += (sectors / count - self._sectors_per_read) * count / (count + MEMORY)
        for read, (result, rc) in zip(reads, results, strict=True):
            read.done(result, rc)
        self._after()

    async def aclose(self) -> None:
        """Take no more; wait for those that have begun."""
        self._closed = True
        for lane in self._lanes:
            await lane.aclose()


def _read_all(sectors_read: Callable[[], int | None], reads: list[Read]) -> tuple[list[tuple[Any, Rc]], int | None]:
    """In a worker's thread: the answers, and the sectors that had to be read for them, if that is known."""
    before = sectors_read()
    results = [attempt(read.job) for read in reads]
    after = sectors_read()
    return results, after - before if after is not None and before is not None else None


def attempt(job: Callable[..., T], *args: Any) -> tuple[T | None, Rc]:
    """What the job answers with Rc.OK, or None with the code of what it raised. Blocking, if the job is."""
    try:
        return job(*args), Rc.OK
    except (BookieError, OSError) as error:
        rc = rc_of(error)
        if rc is Rc.IO:
            log.error("read failed", reason=str(error))
        return None, rc

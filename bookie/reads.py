"""Reads that need the disk: workers that take everything that has gathered, and answer it in one pass of the loop.

No task and no way to a thread and back per read, but per batch: a worker is a lane. The first worker alone serves what one
can; a batch of so many reads that waiting for the disk one after the other would tell wakes the others too.

Bounded: with `waiting_max` reads waiting or being read, the next one is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from bookie.errors import BookieError
from bookie.requests import rc_of
from quire.service.log import get_logger
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import Lane, Offload

log = get_logger(__name__)

SHARE: Final = 16
"""Reads that a worker is given before the next one is asked too."""


class Read(NamedTuple):
    """`job` blocks, and answers what `done` takes with Rc.OK; None and another code if it raised."""

    job: Callable[[], Any]
    done: Callable[[Any, Rc], None]


class ReadWorkers:
    """`after` is called on the loop when the answers of a batch were handed out."""

    def __init__(
        self, offload: Offload, *, name: str, workers: int, waiting_max: int, after: Callable[[], None]
    ) -> None:
        self._offload = offload
        self._name = name
        self._workers = workers
        self._after = after
        self._lanes: list[Lane[Read]] = []
        self._loads: list[int] = []
        self._closed = False
        self.waiting_max = waiting_max
        self.waiting = 0
        """Reads not answered yet."""

    def submit(self, job: Callable[[], Any], done: Callable[[Any, Rc], None]) -> bool:
        """False if too many are waiting, or no more are taken. `done` is called on the loop, and must not raise."""
        if self.waiting >= self.waiting_max or self._closed:
            return False
        self.waiting += 1
        index = self._choose()
        self._loads[index] += 1
        self._lanes[index].put(Read(job, done))
        return True

    def _choose(self) -> int:
        """The first worker that is not busy, a new one if all are; the least busy if there may be no more."""
        loads = self._loads
        for index, load in enumerate(loads):
            if load < SHARE:
                return index
        if len(loads) < self._workers:
            index = len(loads)
            loads.append(0)
            name = f"{self._name} {index}"
            self._lanes.append(self._offload.lane(name, _read_all, partial(self._answered, index)))
            return index
        return loads.index(min(loads))

    def _answered(
        self, index: int, reads: list[Read], results: list[tuple[Any, Rc]] | None, error: BaseException | None
    ) -> None:
        self._loads[index] -= len(reads)
        self.waiting -= len(reads)
        if results is None:
            log.error("a read failed", error=repr(error))
            results = [(None, Rc.IO)] * len(reads)
        for (_, done), (result, rc) in zip(reads, results, strict=True):
            done(result, rc)
        self._after()

    async def aclose(self) -> None:
        """Take no more; wait for those that have begun."""
        self._closed = True
        for lane in self._lanes:
            await lane.aclose()


def _read_all(reads: list[Read]) -> list[tuple[Any, Rc]]:
    """In a worker's thread."""
    results: list[tuple[Any, Rc]] = []
    for job, _ in reads:
        try:
            results.append((job(), Rc.OK))
        except (BookieError, OSError) as error:
            rc = rc_of(error)
            if rc is Rc.IO:
                log.error("read failed", error=str(error))
            results.append((None, rc))
    return results

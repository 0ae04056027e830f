"""Blocking work under virtual time: inline, after a delay drawn from the seed; lanes are tasks of the host.

A job runs in one instant, so a crash would never find it half done. Therefore a crash carries some of the jobs that
wait for their instant on, operation by operation, and stops them where the power goes: after a write, before its sync.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Generic, TypeVar

import trio

from quire.world.doors import GivenUpError, Lane
from quire.world.faults import Faults
from simulation.machines.blocking import Job
from simulation.machines.folder_faults import FolderFaults
from simulation.machines.power import Power, PowerCut
from simulation.machines.trace import Trace

T = TypeVar("T")
Item = TypeVar("Item")


class SimOffload:
    """The offload door of one incarnation of a host; lanes run in `nursery` (None: there can be none)."""

    def __init__(
        self,
        rng: random.Random,
        power: Power,
        trace: Trace,
        host: str,
        nursery: trio.Nursery | None = None,
        faults: Faults | None = None,
        folders: FolderFaults | None = None,
    ) -> None:
        self._rng = rng
        self.power = power
        self.trace = trace
        self.host = host
        self._nursery = nursery
        self.faults = faults or Faults()
        self.slowness = 1.0
        """Factor by which workers are slower than usual."""
        self.hangs_until = 0.0
        """Virtual time before which no job ends."""
        self._begun: dict[int, Callable[[], object]] = {}
        self._jobs = 0
        self._folders = folders or FolderFaults()
        self._folders.on_mended = self.wake
        self._blocked: dict[Job[Any], None] = {}
        """Jobs that have met a folder that hangs. Those that were given up stay until the incarnation ends."""
        self._waits: dict[trio.CancelScope, None] = {}
        self._given_up = False

    def give_up(self) -> None:
        """End every wait for a worker, now and from now on."""
        self._given_up = True
        for scope in list(self._waits):
            scope.cancel()

    @contextmanager
    def wait(self) -> Iterator[None]:
        """Shield a wait for a worker from every cancellation except `give_up`."""
        with trio.CancelScope(shield=True) as scope:
            self._waits[scope] = None
            try:
                if self._given_up:
                    scope.cancel()
                yield
            finally:
                del self._waits[scope]

    def wake(self) -> None:
        """Let all jobs that are blocked look again at their folder, and at the power."""
        for job in self._blocked:
            job.woken.set()

    async def finish(self, job: Callable[[], T]) -> T:
        """Run a job to its end. It is done in one instant, unless it meets a folder that hangs."""
        if not self._folders.hangs:
            return job()
        blocking = Job(job)
        while not blocking.go_on():
            self._blocked[blocking] = None
            try:
                await blocking.woken.wait()
            except trio.Cancelled:
                if not self.power.on:
                    blocking.go_on()  # raises PowerCut
                raise
            del self._blocked[blocking]
        return blocking.result

    def begin(self, job: Callable[[], object]) -> int:
        """Record that a worker has begun `job`; return the argument of `ended`."""
        self._jobs += 1
        self._begun[self._jobs] = job
        return self._jobs

    def ended(self, number: int) -> None:
        del self._begun[number]

    def tear(self, rng: random.Random) -> None:
        """Execute a random part of some of the started jobs, up to the point of the power cut."""
        for job in list(self._begun.values()):
            if rng.random() < 0.85:
                self.power.fuse = rng.choice((0, 1, 1, 1, 2, 2, 3, 5, 8, 13))
                with suppress(Exception, PowerCut):
                    job()

    def delay(self) -> float:
        """Return the seconds a worker takes: mostly those of an idle machine, now and then of a busy one."""
        seconds = self.slowness * (0.05 if self._rng.random() < 0.02 else self._rng.uniform(0.05e-3, 2e-3))
        return seconds + max(0.0, self.hangs_until - trio.current_time())

    async def _pass_time(self) -> None:
        """Wait for a worker's delay. Started work cannot be cancelled, the same as in a thread."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + self.delay()):
            await trio.sleep_forever()

    async def run(self, job: Callable[[], T], *, name: str = "") -> T:
        await trio.lowlevel.checkpoint()
        self.power.check()
        number = self.begin(job)
        try:
            await self._pass_time()
        finally:
            self.ended(number)
        self.power.check()
        error = None
        ended = False
        try:
            with self.wait():
                result = await self.finish(job)
                ended = True
            if not ended:
                raise GivenUpError(errno.EIO, f"the job {name!r} does not end")
        except Exception as raised:
            error = raised
        # Done, but not reported yet: a crash in between leaves unreported work.
        await self._pass_time()
        self.power.check()
        if error is not None:
            raise error
        return result

    def lane(
        self,
        name: str,
        job: Callable[[list[Item]], T],
        done: Callable[[list[Item], T | None, BaseException | None], None],
    ) -> Lane[Item]:
        assert self._nursery is not None, "lanes need a running host: use Host.start or run_world"
        lane = _SimLane(self, name, job, done)
        self._nursery.start_soon(lane.work, name=f"{self.host}/lane/{name}")
        return lane


class _SimLane(Generic[Item]):
    def __init__(
        self,
        offload: SimOffload,
        name: str,
        job: Callable[[list[Item]], Any],
        done: Callable[[list[Item], Any, BaseException | None], None],
    ) -> None:
        self._offload = offload
        self._name = name
        self._job = job
        self._done = done
        self._queue: list[Item] = []
        self._filled = trio.Event()
        self._closing = False
        self._stopped = trio.Event()

    def put(self, item: Item) -> None:
        self._offload.power.check()
        if self._closing:
            raise RuntimeError("the lane is closed")
        self._queue.append(item)
        self._filled.set()

    async def aclose(self) -> None:
        self._closing = True
        self._filled.set()
        with self._offload.wait():
            await self._stopped.wait()
        self._offload.power.check()

    async def work(self) -> None:
        try:
            await self._filled.wait()
            while self._queue:
                await self._turn()
                await self._filled.wait()
        finally:
            self._stopped.set()

    async def _turn(self) -> None:
        """Run the job once. Items that arrive meanwhile wait for the next run."""
        offload = self._offload
        number = offload.begin(lambda: self._job(list(self._queue)))
        try:
            await trio.sleep(offload.delay())
        finally:
            offload.ended(number)
        offload.power.check()
        items, self._queue = self._queue, []
        if not self._closing:
            self._filled = trio.Event()
        result, error = None, None
        try:
            result = await offload.finish(partial(self._job, items))
        except Exception as raised:
            error = raised
        offload.trace.event(offload.host, "LaneRan", lane=self._name, items=len(items), failed=error is not None)
        await trio.sleep(offload.delay())  # done, but not yet reported, as in `run`
        offload.power.check()
        offload.faults.call(f"a callback of the thread {self._name!r}", self._done, items, result, error)

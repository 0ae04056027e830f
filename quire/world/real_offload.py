"""Threads of the real world.

A worker thread's way back to the loop by `TrioToken.run_sync_soon` costs 35 us, by `trio.to_thread` 57 us: hence lanes
have threads of their own.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import trio

from quire.world.doors import GivenUpError, Lane
from quire.world.faults import Faults

T = TypeVar("T")
Item = TypeVar("Item")

_WORKERS = 16
"""Threads of `Offload.run`; lanes have their own."""


class RealOffload:
    def __init__(self, faults: Faults | None = None) -> None:
        self._faults = faults or Faults()
        self._waits = _Waits()
        self._limiter = trio.CapacityLimiter(_WORKERS)

    async def run(self, job: Callable[[], T], *, name: str = "") -> T:
        await trio.lowlevel.checkpoint_if_cancelled()
        with self._waits.wait():
            return await trio.to_thread.run_sync(
                job, limiter=self._limiter, thread_name=name or None, abandon_on_cancel=True
            )
        raise GivenUpError(errno.EIO, f"the job {name!r} does not end")

    def give_up(self) -> None:
        self._waits.give_up()

    def lane(
        self,
        name: str,
        job: Callable[[list[Item]], T],
        done: Callable[[list[Item], T | None, BaseException | None], None],
    ) -> Lane[Item]:
        return RealLane(name, job, done, self._faults, self._waits)


class _Waits:
    """Waits for threads: shielded from every cancellation except `give_up`."""

    def __init__(self) -> None:
        self._scopes: set[trio.CancelScope] = set()
        self._given_up = False

    @contextmanager
    def wait(self) -> Iterator[None]:
        with trio.CancelScope(shield=True) as scope:
            self._scopes.add(scope)
            try:
                if self._given_up:
                    scope.cancel()
                yield
            finally:
                self._scopes.discard(scope)

    def give_up(self) -> None:
        self._given_up = True
        for scope in list(self._scopes):
            scope.cancel()


_STOP: Any = object()


class RealLane(Generic[Item]):
    def __init__(
        self,
        name: str,
        job: Callable[[list[Item]], Any],
        done: Callable[[list[Item], Any, BaseException | None], None],
        faults: Faults,
        waits: _Waits,
    ) -> None:
        self._waits = waits
        self._call = faults.call
        self._where = f"a callback of the thread {name!r}"
        self._job = job
        self._done = done
        self._queue: SimpleQueue[Item] = SimpleQueue()
        self._closing = False
        self._stopped = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def put(self, item: Item) -> None:
        if self._closing:
            raise RuntimeError("the lane is closed")
        self._queue.put(item)

    async def aclose(self) -> None:
        if not self._closing:
            self._closing = True
            self._queue.put(_STOP)
        # As with `run`, what has begun is finished: no item is dropped, even if the caller is cancelled.
        with self._waits.wait():
            await self._stopped.wait()

    def _work(self) -> None:
        queue = self._queue
        post = self._token.run_sync_soon
        stop = False
        # The loop ended without closing its lanes: there is nothing to report to.
        with suppress(trio.RunFinishedError):
            while not stop:
                items = [queue.get()]
                items += [queue.get_nowait() for _ in range(queue.qsize())]
                if items[-1] is _STOP:
                    stop = True
                    items.pop()
                if items:
                    result, error = None, None
                    try:
                        result = self._job(items)
                    except BaseException as raised:
                        error = raised
                    post(self._call, self._where, self._done, items, result, error)
                    del items, result, error  # an idle lane must not keep the last run's buffers alive
            post(self._stopped.set)

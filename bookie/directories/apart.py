"""Apart: work on all ledger directories at the same time, such as garbage collection.

A directory whose disk hangs does not end its work. When the others have ended theirs it is left to itself, and is left
out of later work until it has ended: rounds of the other directories go on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import trio

from bookie.directories.health import STALLED_AFTER_S, DirectoryHealth
from bookie.errors import StorageFailedError
from quire.service.log import get_logger

T = TypeVar("T")
log = get_logger(__name__)


class Apart:
    """Work of one kind. `on_failed` is called with the number of a directory that can no longer be trusted."""

    def __init__(self, health: DirectoryHealth, on_failed: Callable[[int, StorageFailedError], None]) -> None:
        self._health = health
        self._on_failed = on_failed
        self._nursery: trio.Nursery | None = None
        self.busy: dict[int, int] = {}
        """Directories with work that was left to itself, and how many pieces of it."""
        self._scopes: set[trio.CancelScope] = set()
        self._stopping = False
        self._ended = trio.Event()

    @contextmanager
    def within(self, nursery: trio.Nursery) -> Iterator[None]:
        """Let work that does not end stay in `nursery`, while entered."""
        self._nursery = nursery
        try:
            yield
        finally:
            self._nursery = None

    async def each(self, work: Callable[[int], Awaitable[T]]) -> list[T]:
        """Run `work` with the number of each directory that can be used; return the results of those that ended.

        Raises the first error, after all have ended. After `stop` nothing runs.
        """
        chosen = [index for index in self._health.usable if index not in self.busy]
        results: list[T] = []
        if len(chosen) < 2 or self._nursery is None:
            for index in chosen:
                await self._one(index, work, results)
            return results
        errors: list[Exception] = []
        left = set(chosen)
        is_over = False
        ended = trio.Event()

        async def run(index: int) -> None:
            try:
                await self._one(index, work, results)
            except Exception as error:
                if is_over:
                    log.warning("work on a directory failed, retrying", reason=str(error))
                errors.append(error)
            finally:
                if is_over:
                    self._end_of(index)
                left.discard(index)
                ended.set()

        for index in chosen:
            self._nursery.start_soon(run, index, name=f"work on directory {index}")
        patient_until = trio.current_time() + STALLED_AFTER_S
        while left and (len(left) == len(chosen) or trio.current_time() < patient_until):
            ended = trio.Event()
            deadline = patient_until if len(left) < len(chosen) else float("inf")
            with trio.move_on_at(deadline):
                await ended.wait()
        is_over = True
        for index in left:
            self.busy[index] = self.busy.get(index, 0) + 1
        if errors:
            raise errors[0]
        return list(results)

    def _end_of(self, index: int) -> None:
        self.busy[index] -= 1
        if not self.busy[index]:
            del self.busy[index]

    async def _one(self, index: int, work: Callable[[int], Awaitable[T]], results: list[T]) -> None:
        with trio.CancelScope() as scope:
            if self._stopping:
                scope.cancel()
            self._scopes.add(scope)
            try:
                results.append(await work(index))
            except StorageFailedError as error:
                self._on_failed(index, error)
                raise
            finally:
                self._scopes.discard(scope)
                if self._stopping and not self._scopes:
                    self._ended.set()

    def stop(self) -> None:
        """Begin no work any more."""
        self._stopping = True

    async def end(self) -> None:
        """After `stop`: break the work off, and wait for the jobs that run."""
        for scope in list(self._scopes):
            scope.cancel()
        if self._scopes:
            await self._ended.wait()

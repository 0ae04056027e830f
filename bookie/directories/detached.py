"""Detached: jobs on ledger directories, each of which is left to itself if its disk does not answer.

A job that is left goes on, and its directory counts as stalled until it is done (health.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from bookie.directories.health import STALLED_AFTER_S, DirectoryHealth

LOOK_S: Final = 1.0
"""Seconds between two looks for a directory that does not answer."""


class Detached:
    """Jobs of the directories of one bookie. `watches`: whether a job that takes too long makes its directory stalled;
    not so if there is only one directory.
    """

    def __init__(self, health: DirectoryHealth, *, watches: bool) -> None:
        self._health = health
        self._watches = watches
        self._busy_since: list[dict[object, float]] = [{} for _ in health.folders]
        """Times at which the jobs of a directory began that have not ended."""
        self.nursery: trio.Nursery | None = None
        """Nursery for jobs that are left; None: no job is left."""

    async def busy(self, directory: int, job: Callable[[], Awaitable[None]]) -> None:
        """Run a job on a directory. If it takes too long, the directory counts as stalled until the job is done."""
        running = self._busy_since[directory]
        this = object()
        running[this] = trio.current_time()
        try:
            await job()
        finally:
            del running[this]
            if not self._takes_long(directory):
                self._health.answers(directory)

    def _takes_long(self, directory: int) -> bool:
        """Return whether a job on a directory has taken so long that its disk counts as hanging."""
        return trio.current_time() >= min(self._busy_since[directory].values(), default=float("inf")) + STALLED_AFTER_S

    async def watch(self) -> None:
        """Notice directories that do not answer, until cancelled."""
        while self._watches:
            await trio.sleep(LOOK_S)
            for directory in range(len(self._busy_since)):
                if self._takes_long(directory):
                    self._health.stalled(directory)

    async def unless_stalled(self, job: Callable[[], Awaitable[None]], directory: int | None = None) -> bool:
        """Run a job; return False if it is left to itself because it takes too long. Raises what it raises.

        A job that is left makes its directory stalled until it is done. With one directory nothing is left.
        """
        if self.nursery is None:
            await job()
            return True
        ended = trio.Event()
        errors: list[OSError] = []

        async def run() -> None:
            try:
                if directory is None:
                    await job()
                else:
                    await self.busy(directory, job)
            except OSError as error:
                errors.append(error)
            ended.set()

        self.nursery.start_soon(run, name="bookie marks")
        with trio.move_on_after(STALLED_AFTER_S):
            await ended.wait()
        if errors:
            raise errors[0]
        if not ended.is_set() and directory is not None:
            self._health.stalled(directory)
        return ended.is_set()

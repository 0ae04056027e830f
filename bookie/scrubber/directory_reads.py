"""Reads of ledger directories with a deadline: a disk that hangs must not end the scrub of the others.

A read that has begun cannot be cancelled. It is left to itself, and its directory is left out until it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import trio

from quire.world.doors import Offload

T = TypeVar("T")

READ_S: Final = 60.0
"""Seconds that one step of a scrub may take: a few reads of up to 256 KiB."""


class DirectoryHangsError(Exception):
    """A read does not end. The scrub goes on with the other directories, and with this one when the read has ended."""


class DirectoryReads:
    """Reads of the directories of one bookie. `nursery`: for reads that are left; `ended`: called when one of these has
    ended."""

    def __init__(self, offload: Offload, nursery: trio.Nursery, ended: Callable[[], None]) -> None:
        self._offload = offload
        self._nursery = nursery
        self._ended = ended
        self.hanging: set[int] = set()
        """Directories with a read that was left and has not ended."""

    async def run(self, directory: int, job: Callable[[], T]) -> T:
        """Run a blocking job that only reads. DirectoryHangsError, and what the job raises."""
        results: list[T] = []
        errors: list[Exception] = []
        done = trio.Event()

        async def read() -> None:
            try:
                results.append(await self._offload.run(job, name="scrub"))
            except Exception as error:
                errors.append(error)
            done.set()
            if directory in self.hanging:
                self.hanging.discard(directory)
                self._ended()

        self._nursery.start_soon(read, name="scrub read")
        with trio.move_on_after(READ_S):
            await done.wait()
        if not done.is_set():
            self.hanging.add(directory)
            raise DirectoryHangsError
        if errors:
            raise errors[0]
        return results[0]

"""Jobs that block: one that meets a disk which hangs stops in the middle, and everything else goes on.

A job is a plain function that runs in one instant of virtual time. To stop in the middle of one it runs in a greenlet,
which has a stack of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Generic, TypeVar

import trio
from greenlet import getcurrent, greenlet

T = TypeVar("T")


def block() -> None:
    """Stop the worker's job that calls this, until its `Job` is continued.

    Outside of a worker's job the event loop would wait for the disk. That is an error of the program.
    """
    current = getcurrent()
    assert current.parent is not None, "the event loop waits for a disk that hangs"
    current.parent.switch(True)


class Job(Generic[T]):
    """One run of a job that may block."""

    def __init__(self, job: Callable[[], T]) -> None:
        self._stack: Any = greenlet(self._run)
        self._stack.gr_context = copy_context()
        self._job = job
        self._results: list[T] = []
        self.woken = trio.Event()
        """Set when it should look again whether the disk answers."""

    def _run(self) -> bool:
        self._results.append(self._job())
        return False

    def go_on(self) -> bool:
        """Run the job until it ends or blocks; return whether it has ended. Raises what the job raises."""
        self.woken = trio.Event()
        blocked: bool = self._stack.switch()
        return not blocked

    @property
    def result(self) -> T:
        """Return what the job has returned."""
        return self._results[0]

"""Exceptions of callbacks that have no task of their own.

They run on the event loop outside every task, like reports of threads, or in a task shared by many callers, like
confirmations in a connection to a bookie.

An exception that leaves a callback outside every task ends the whole run with an internal error of trio. In a task it
ends everything in the same nursery, as a group in groups. A server waits for the first fault instead and stops, with
the traceback in its log. Without such a server the exception is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import trio


class Fault(NamedTuple):
    """Exception of a callback. `where` names the callback that raised `error`."""

    where: str
    error: Exception


class Faults:
    """Faults of one process."""

    def __init__(self) -> None:
        self._watched = False
        self.first: Fault | None = None
        self.logged = False
        """The first fault is in the log. Set by whatever writes it there."""
        self._reported = trio.Event()

    def call(self, where: str, callback: Callable[..., None], *arguments: object) -> None:
        """Call `callback`. An exception becomes a fault, or is raised if nothing waits for faults."""
        try:
            callback(*arguments)
        except Exception as error:
            self.raised(where, error)

    def raised(self, where: str, error: Exception) -> None:
        """Record `error` of a callback as a fault, or raise it again if nothing waits for faults."""
        if not self._watched:
            raise error
        if self.first is None:
            self.first = Fault(where, error)
            self._reported.set()

    def watch(self) -> None:
        """Keep exceptions as faults from now on: the caller waits for them."""
        self._watched = True

    async def wait(self) -> Fault:
        """Wait for the first fault."""
        self.watch()
        await self._reported.wait()
        assert self.first is not None, "an event without a fault"
        return self.first

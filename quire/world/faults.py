"""Exceptions of callbacks: of those that run on the event loop outside every task, as what a thread reports, and of those that a
task shared by many calls for each of them, as a connection to a bookie does with confirmations.

Trio ends the whole run for an exception that leaves a callback outside every task, with an internal error of its own; in a task it
ends everything in the same nursery, as a group in groups. A server waits for the first fault instead and ends itself, with the
traceback in its log. Without a server that waits, the exception goes its way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import trio


class Fault(NamedTuple):
    """`where` names the callback that raised `error`."""

    where: str
    error: Exception


class Faults:
    """Those of one process."""

    def __init__(self) -> None:
        self._watched = False
        self.first: Fault | None = None
        self.logged = False
        """The first fault is in the log. Set by whatever writes it there."""
        self._reported = trio.Event()

    def call(self, where: str, callback: Callable[..., None], *arguments: object) -> None:
        """Call `callback`. What it raises is a fault, or is raised if nothing waits for faults."""
        try:
            callback(*arguments)
        except Exception as error:
            self.raised(where, error)

    def raised(self, where: str, error: Exception) -> None:
        """`error` has left a callback: a fault, or raised again if nothing waits for faults."""
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

"""Exceptions of callbacks that run on the event loop outside every task: what a thread reports, for instance.

Trio ends the whole run for an exception that leaves such a callback, with an internal error of its own. A server waits for the
first fault instead and ends itself, with the traceback in its log. Without a server that waits, the exception goes its way.
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
        self._first: Fault | None = None
        self._reported = trio.Event()

    def call(self, where: str, callback: Callable[..., None], *arguments: object) -> None:
        """Call `callback`. What it raises is a fault, or is raised if nothing waits for faults."""
        try:
            callback(*arguments)
        except Exception as error:
            if not self._watched:
                raise
            if self._first is None:
                self._first = Fault(where, error)
                self._reported.set()

    async def wait(self) -> Fault:
        """The first fault."""
        self._watched = True
        await self._reported.wait()
        assert self._first is not None, "an event without a fault"
        return self._first

"""Delayed writes of acknowledgements without waiting callers: one task for all cursors of a broker."""

from __future__ import annotations

from typing import Protocol

import trio


class Flushable(Protocol):
    def flush(self) -> None:
        """Start writing pending changes. Must not raise."""


class Flusher:
    """Dirty cursors, flushed together `delay_s` after the first of them became dirty."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._dirty: list[Flushable] = []
        self._some = trio.Event()

    def add(self, dirty: Flushable) -> None:
        """Add a dirty cursor, once until it is flushed."""
        self._dirty.append(dirty)
        if len(self._dirty) == 1:
            self._some.set()

    async def run(self) -> None:
        """Flush until cancelled."""
        while True:
            await self._some.wait()
            await trio.sleep(self._delay_s)
            dirty, self._dirty = self._dirty, []
            self._some = trio.Event()
            for one in dirty:
                one.flush()

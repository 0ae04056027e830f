"""Turns: one caller at a time for each of many names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class Turns:
    """Callers of one name follow each other; a name that has none costs nothing."""

    def __init__(self) -> None:
        self._taken: dict[str, trio.Event] = {}

    @asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[None]:
        """Wait for the turn, and have it inside."""
        while (taken := self._taken.get(name)) is not None:
            await taken.wait()
        done = self._taken[name] = trio.Event()
        try:
            yield
        finally:
            del self._taken[name]
            done.set()

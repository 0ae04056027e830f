"""RareLock: a lock of an object of which there are thousands, and which is nearly always free."""

from __future__ import annotations

import trio


class RareLock:
    """As trio.Lock, in `async with` only. What a lock takes in memory, 300 bytes, is allocated only while a task holds it."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock: trio.Lock | None = None

    async def __aenter__(self) -> None:
        lock = self._lock
        if lock is None:
            lock = self._lock = trio.Lock()
        await lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        lock = self._lock
        assert lock is not None, "it stays while a task holds it"
        lock.release()
        if not lock.locked():  # the next task that waited holds it already
            self._lock = None

"""Reads of closed ledgers: each is opened once, and equal concurrent reads share one answer."""

from __future__ import annotations

from typing import Protocol

import trio
from cachetools import LRUCache

from cursors.doors import Readable

READERS_MAX = 16


class Opens(Protocol):
    """Opening of the closed ledgers of a log."""

    async def open(self, ledger_id: int, *, recover: bool) -> Readable:
        """Return a reader of a ledger."""


class LogReads:
    """Read path of one log."""

    __slots__ = ("_ledgers", "_opening", "_readers", "_running", "entries", "reads")

    def __init__(self, ledgers: Opens) -> None:
        self._ledgers = ledgers
        self._readers: LRUCache[int, Readable] | None = None
        """Set from the first closed ledger that is read."""
        self._opening: dict[int, trio.Event] | None = None
        self._running: dict[tuple[int, int, int, int], _Running] | None = None
        """None, like the other two, until the first read at a ledger, which most logs never have."""
        self.reads = self.entries = 0
        """Number of reads at a ledger, and of entries that they gave."""

    async def read(
        self, source: Readable | None, ledger_id: int, first: int, last: int, size_max: int
    ) -> tuple[list[memoryview], bool]:
        """Return payloads from `first` on, at least one, and whether this call read them.

        Concurrent calls for the same range share the answer. `source`: an open ledger; None: open the closed one.
        Raises LedgerError, MetadataError, ObjectError."""
        key = (ledger_id, first, last, size_max)
        if self._running is None:
            self._running = {}
        all_running = self._running
        running = all_running.get(key)
        if running is not None:
            await running.done.wait()
            if running.payloads is not None:
                return running.payloads, False
        running = all_running[key] = _Running()
        try:
            reader = source or await self._reader(ledger_id)
            self.reads += 1
            running.payloads = await reader.read(first, last, size_max=size_max)
            self.entries += len(running.payloads)
            return running.payloads, True
        except Exception:
            self.forget(ledger_id)
            raise
        finally:
            if all_running.get(key) is running:
                del all_running[key]
            running.done.set()

    async def _reader(self, ledger_id: int) -> Readable:
        opening = self._opening
        if opening is None:
            opening = self._opening = {}
        while ledger_id in opening:
            await opening[ledger_id].wait()
        reader = None if self._readers is None else self._readers.get(ledger_id)
        if reader is None:
            opened = opening[ledger_id] = trio.Event()
            try:
                reader = await self._ledgers.open(ledger_id, recover=False)
                if self._readers is None:
                    self._readers = LRUCache(READERS_MAX)
                self._readers[ledger_id] = reader
            finally:
                del opening[ledger_id]
                opened.set()
        return reader

    def forget(self, ledger_id: int) -> None:
        """Forget a reader whose ledger was deleted, or that failed: it is opened again."""
        if self._readers is not None:
            self._readers.pop(ledger_id, None)


class _Running:
    __slots__ = ("done", "payloads")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.payloads: list[memoryview] | None = None

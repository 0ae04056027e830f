"""Reads that give way to adds: how many workers read at once, and how much the kernel reads for them.

An add needs the event loop, the journal's thread and the disk, each within a millisecond. A reader that catches up has
as many large reads in progress as there are workers. Then each step of the loop and of the journal's thread waits for
an interpreter that as many threads want, and each sync waits behind what the kernel or the bookie reads ahead, up to
megabytes in one request to the disk. Large reads are not faster by that: one worker reads as much as the loop can
answer.

Small reads, which wait for the disk and hardly use the interpreter, keep their workers: the bound is in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import trio

from bookie.config import BookieConfig
from bookie.directories.journals import LedgerJournal
from bookie.directories.storage import LedgerStorage
from bookie.journal.writer import Journal
from bookie.reads import ReadWorkers

RECENT_S: Final = 0.1
"""Seconds after a group of the journal in which the next add is expected."""
MOST: Final = 1 << 30
"""As many workers as there are, or bytes as are wanted."""
_SECTOR: Final = 512


def workers_beside_adds(bytes_max: int, sectors_per_read: float) -> int:
    """Return how many workers may read at once, so that they read at most `bytes_max` bytes together; at least one.

    >>> [workers_beside_adds(256 << 10, sectors) for sectors in (1, 8, 64, 512, 2048)]
    [512, 64, 8, 1, 1]
    """
    return max(1, int(bytes_max // (max(sectors_per_read, 1) * _SECTOR)))


class AddsUnderWay:
    """Recognizes whether entries are being added. May be asked in any thread."""

    def __init__(self, journals: Sequence[Journal], now: Callable[[], float], *, recent_s: float = RECENT_S) -> None:
        """`now`: clock of the event loop. `recent_s`: seconds after an add in which the next one is expected."""
        self._journals = journals
        self._now = now
        self._recent_s = recent_s

    def __call__(self) -> bool:
        """Return whether records wait for a journal, or were written to one a moment ago."""
        since = self._now() - self._recent_s
        return any([journal.queued_bytes > 0 or journal.written_at > since for journal in self._journals])


class ReadingBookie(Protocol):
    """The part of the bookie that is needed here."""

    @property
    def config(self) -> BookieConfig: ...

    @property
    def storage(self) -> LedgerStorage: ...

    @property
    def journal(self) -> LedgerJournal: ...


def give_way_to_adds(bookie: ReadingBookie, workers: Sequence[ReadWorkers]) -> None:
    """Make workers, and the kernel for whatever reads entry logs, read less while entries are added."""
    bytes_max = bookie.config.read_bytes_beside_adds
    if not bytes_max:
        return
    adding = AddsUnderWay(bookie.journal.journals, trio.lowlevel.current_clock().current_time)
    for each in workers:
        each.most_workers = partial(_most_workers, adding, bytes_max)
    for storage in bookie.storage.directories:
        storage.open_logs.scatters = adding
        storage.open_logs.read_ahead_max = partial(_most_ahead, adding, bytes_max)


def _most_workers(adding: AddsUnderWay, bytes_max: int, sectors_per_read: float) -> int:
    return workers_beside_adds(bytes_max, sectors_per_read) if adding() else MOST


def _most_ahead(adding: AddsUnderWay, bytes_max: int) -> int:
    return bytes_max if adding() else MOST

"""Ranges that threads read at a time, as one sequence of record batches in order, within a bound of bytes.

    range        0      1      2      3      4
                 taken  full   reading       waits: at most `parallel` ranges are begun and not taken whole

The consumer takes the batches of the first range, then those of the second. Each range that was begun has its share of
the buffer: a thread whose share is full waits. The first range is always being taken, so its thread goes on, and all
others follow. A range is small (quire.tables.topic_rows), so the threads behind the first one seldom wait.

Nothing joins the threads. A consumer may leave in the middle, and the collector may close the generator in any thread,
also in the one of the loop, which the threads need to end. They see that it was closed at their next batch.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

ReadRange = TypeVar("ReadRange")


class Sized(Protocol):
    """Part of a record batch that is needed here."""

    @property
    def nbytes(self) -> int: ...


B = TypeVar("B", bound=Sized)


class _Ahead(Generic[B]):
    """Batches of one range that were read and not taken."""

    def __init__(self) -> None:
        self.batches: deque[B] = deque()
        self.size_bytes = 0
        self.done = False
        self.error: BaseException | None = None


class ReadingAhead(Generic[ReadRange, B]):
    """One read of some ranges; use `batches` once."""

    def __init__(
        self,
        ranges: Sequence[ReadRange],
        read: Callable[[ReadRange], Iterator[B]],
        *,
        parallel: int,
        buffer_bytes: int,
    ) -> None:
        """Take the ranges in order, and a function that yields the batches of one of them and may block."""
        self._ranges = ranges
        self._read = read
        self._parallel = max(min(parallel, len(ranges)), 1)
        self._share = max(buffer_bytes // self._parallel, 1)
        self._changed = threading.Condition()  # (re-entrant: the collector may close a read in a thread that holds it)
        self._ahead: dict[int, _Ahead[B]] = {}
        self._next = 0
        """Number of the first range that no thread has begun."""
        self._taken = 0
        """Number of the range that is being taken."""
        self._stopped = False

    def batches(self) -> Generator[B, None, None]:
        """Yield the batches of all ranges in order. An error of a range is raised behind the batches before it."""
        for number in range(min(self._parallel, len(self._ranges))):
            threading.Thread(target=self._work, name=f"quire-table-{number}", daemon=True).start()
        try:
            for number in range(len(self._ranges)):
                while (batch := self._take(number)) is not None:
                    yield batch
        finally:
            self.stop()

    def stop(self) -> None:
        """End the threads, each at its next batch. Idempotent; does not wait."""
        with self._changed:
            self._stopped = True
            self._ahead.clear()
            self._changed.notify_all()

    def _take(self, number: int) -> B | None:
        """Return the next batch of a range; None at its end. Raises the error of the range."""
        with self._changed:
            while True:
                ahead = self._ahead.get(number)
                if ahead is not None and ahead.batches:
                    batch = ahead.batches.popleft()
                    ahead.size_bytes -= batch.nbytes
                    self._changed.notify_all()
                    return batch
                if ahead is not None and ahead.error is not None:
                    raise ahead.error
                if ahead is not None and ahead.done:
                    del self._ahead[number]
                    self._taken = number + 1
                    self._changed.notify_all()
                    return None
                self._changed.wait()

    def _work(self) -> None:
        while (begun := self._begin()) is not None:
            number, ahead = begun
            try:
                self._fill(number, ahead)
            except BaseException as error:  # (raised where the batches are taken)
                ahead.error = error
            with self._changed:
                ahead.done = True
                self._changed.notify_all()

    def _begin(self) -> tuple[int, _Ahead[B]] | None:
        """Return the next range, once it may be begun; None: there is none."""
        with self._changed:
            while True:
                if self._stopped or self._next >= len(self._ranges):
                    return None
                if self._next < self._taken + self._parallel:
                    break
                self._changed.wait()
            number = self._next
            self._next += 1
            ahead = self._ahead[number] = _Ahead()
            return number, ahead

    def _fill(self, number: int, ahead: _Ahead[B]) -> None:
        batches = self._read(self._ranges[number])
        try:
            for batch in batches:
                with self._changed:
                    while ahead.size_bytes >= self._share and not self._stopped:
                        self._changed.wait()
                    if self._stopped:
                        return
                    ahead.batches.append(batch)
                    ahead.size_bytes += batch.nbytes
                    self._changed.notify_all()
        finally:
            close = getattr(batches, "close", None)
            if close is not None:
                close()

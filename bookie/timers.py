"""Timers without a task for each: used by long polls and by adds that wait for room.

A cancelled timer stays in the heap until its time, or until half of the heap is cancelled.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

import trio

_GARBAGE_MIN: Final = 1000


class Timer:
    """A timer, created by `Timers.at`."""

    __slots__ = ("_number", "_timers", "call", "deadline")

    def __init__(self, timers: Timers, deadline: float, number: int, call: Callable[[], None]) -> None:
        self._timers = timers
        self._number = number
        self.deadline = deadline
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Cancel the timer; no effect if its time has come."""
        if self.call is not None:
            self.call = None
            self._timers.cancelled()

    def __lt__(self, other: Timer) -> bool:
        return (self.deadline, self._number) < (other.deadline, other._number)


class Timers:
    """Heap of timers. `run` must be running for anything to be called; callbacks must not raise."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._made = 0
        self._garbage = 0
        self._wake = trio.Event()

    def at(self, deadline: float, call: Callable[[], None]) -> Timer:
        """Call `call` at `deadline`, by trio's clock."""
        self._made += 1
        timer = Timer(self, deadline, self._made, call)
        heappush(self._heap, timer)
        if self._heap[0] is timer:
            self._wake.set()
        return timer

    def cancelled(self) -> None:
        """Called by `Timer.cancel`."""
        self._garbage += 1
        if self._garbage >= _GARBAGE_MIN and 2 * self._garbage >= len(self._heap):
            self._heap = [timer for timer in self._heap if timer.call is not None]
            heapify(self._heap)
            self._garbage = 0

    async def run(self, after: Callable[[], None]) -> None:
        """Call due timers until cancelled; call `after` each time that some were due."""
        while True:
            self._wake = trio.Event()
            with trio.move_on_at(self._heap[0].deadline if self._heap else float("inf")):
                await self._wake.wait()
            now = trio.current_time()
            called = False
            while self._heap and self._heap[0].deadline <= now:
                timer = heappop(self._heap)
                call, timer.call = timer.call, None
                if call is None:
                    self._garbage -= 1
                else:
                    called = True
                    call()
            if called:
                after()

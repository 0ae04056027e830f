"""Times for which the event loop is held, measured once per pass of the loop, not per step of a task.

A pass runs every task that is ready, once, between two looks at the sockets and timers. So no step is longer than its
pass, and a pass is how long everything else waited. Two calls per pass cost less than 1 us; the hooks of a task's steps
would cost that for each step.
"""

from __future__ import annotations

from typing import Final

import trio

from quire.service.measuring.summaries import Histogram
from quire.service.metrics import Metrics

BOUNDS_MS: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0)


class LoopWatch(trio.abc.Instrument):
    """Instrument of the loop of one process; give it to `trio.lowlevel.add_instrument`."""

    def __init__(self) -> None:
        self.passes = Histogram(BOUNDS_MS)
        """Durations of passes in milliseconds."""
        self._longest_ms = 0.0
        self._began: float | None = None
        self._now = trio.lowlevel.current_clock().current_time

    def after_io_wait(self, timeout: float) -> None:
        """Begin a pass."""
        self._began = self._now()

    def before_io_wait(self, timeout: float) -> None:
        """End a pass."""
        if self._began is not None:
            took_ms = 1000 * (self._now() - self._began)
            self.passes.observe(took_ms)
            if took_ms > self._longest_ms:
                self._longest_ms = took_ms

    def longest_ms(self) -> float:
        """Return the longest pass since the last call, in milliseconds."""
        longest, self._longest_ms = self._longest_ms, 0.0
        return longest


def watch_loop(metrics: Metrics) -> LoopWatch:
    """Measure this thread's loop from now on and expose it."""
    watch = LoopWatch()
    trio.lowlevel.add_instrument(watch)
    metrics.gauge(
        "quire_event_loop_longest_pass_ms",
        "Longest pass of the event loop since the last scrape, in milliseconds; no step of a task was longer",
        watch.longest_ms,
    )
    metrics.histogram(
        "quire_event_loop_lag_ms",
        "Durations of passes of the event loop in milliseconds: how long everything else waited",
        watch.passes,
    )
    return watch

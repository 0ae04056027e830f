"""Times of an operation, apart for those that succeeded and those that failed, as BookKeeper's summaries have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import trio

from quire.service.measuring.summaries import BOUNDS, Times


class Outcomes:
    """Durations of one kind of operation in milliseconds."""

    __slots__ = ("bad", "good")

    def __init__(self, bounds: Sequence[float] = BOUNDS) -> None:
        self.good = Times(bounds)
        self.bad = Times(bounds)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Time the block: it failed if it raises an Exception, and does not count if it is cancelled."""
        began = trio.current_time()
        try:
            yield
        except Exception:
            self.bad.observe(1000 * (trio.current_time() - began))
            raise
        self.good.observe(1000 * (trio.current_time() - began))

    def labelled(self, *marks: str) -> list[tuple[tuple[str, ...], Times]]:
        """Return both with the values of their labels: `success`, and then `marks`."""
        return [(("true", *marks), self.good), (("false", *marks), self.bad)]

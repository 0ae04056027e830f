"""Background jobs of a server, which run as long as it does and never end it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from quire.service.log import get_logger

log = get_logger(__name__)

PAUSE_MIN_S: Final = 1.0
PAUSE_MAX_S: Final = 60.0
"""Seconds between a failure and the next try, doubled from the first to the second value."""


class Backoff:
    """The pauses between tries that fail one after the other."""

    def __init__(self, first_s: float = PAUSE_MIN_S, max_s: float = PAUSE_MAX_S) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._next_s = first_s

    def next_s(self) -> float:
        """Seconds to wait now; twice as many the next time."""
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, self._max_s)
        return pause_s

    def reset(self) -> None:
        """A try went well."""
        self._next_s = self._first_s


class JobFailures:
    """Failure counts of each background job for unexpected exceptions."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def add(self, job: str) -> None:
        """Count and log the current exception."""
        self.counts[job] = self.counts.get(job, 0) + 1
        log.exception("background job failed, retrying", job=job)


async def keep_trying(job: str, run: Callable[[], Awaitable[None]], failures: JobFailures) -> None:
    """Run a job until it returns. After an exception it begins anew, with a pause before."""
    backoff = Backoff()
    while True:
        begun = trio.current_time()
        try:
            await run()
            return
        except Exception:
            failures.add(job)
        if trio.current_time() - begun > PAUSE_MAX_S:
            backoff.reset()
        await trio.sleep(backoff.next_s())

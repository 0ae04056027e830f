"""Background jobs of a server, which run as long as it does and never end it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from quire.service.log import get_logger
from quire.world.backoff import Backoff
from quire.world.doors import Rng

log = get_logger(__name__)

PAUSE_MIN_S: Final = 1.0
PAUSE_MAX_S: Final = 60.0
"""Seconds between a failure and the next try, doubled from the first to the second value."""


def job_backoff(rng: Rng) -> Backoff:
    """Return the pauses between tries of a background job."""
    return Backoff(PAUSE_MIN_S, PAUSE_MAX_S, rng)


class JobFailures:
    """Failure counts of each background job for unexpected exceptions."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def add(self, job: str) -> None:
        """Count and log the current exception."""
        self.counts[job] = self.counts.get(job, 0) + 1
        log.exception("background job failed, retrying", job=job)


async def keep_trying(job: str, run: Callable[[], Awaitable[None]], failures: JobFailures, rng: Rng) -> None:
    """Run a job until it returns. After an exception it starts again, after a pause."""
    backoff = job_backoff(rng)
    while True:
        begun = trio.current_time()
        try:
            await run()
            return
        except Exception:
            failures.add(job)
        if trio.current_time() - begun > PAUSE_MAX_S:
            backoff.reset()
        await trio.sleep(backoff.next())

"""Repetition of checkpoints that fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from bookie.disks.watch import DiskWatch
from bookie.errors import StorageFailedError
from bookie.recovery import NO_ROOM
from quire.service.background import JobFailures, job_backoff
from quire.service.log import get_logger
from quire.world.doors import Rng

log = get_logger(__name__)

RETRY_S: Final = 1.0
"""Seconds from a checkpoint that failed to the next try."""
LOGGED_EVERY_S: Final = 60.0
"""Seconds between two log lines about consecutive failed checkpoints."""


def retrying(
    rng: Rng,
    disks: DiskWatch,
    job_failures: JobFailures,
    stop_wanted: trio.Event,
    *,
    directory: int | None = None,
) -> Callable[[Callable[[], Awaitable[None]]], Awaitable[bool]]:
    """Return a function that runs a job and handles its errors.

    `directory`: the only ledger directory that the job uses, None if it uses all.

    It returns False, after a wait, if the disk refused the job and it is to be run again. StorageFailedError is raised.
    """
    backoff = job_backoff(rng)
    log_again = 0.0
    key = object()

    async def attempt(job: Callable[[], Awaitable[None]]) -> bool:
        nonlocal log_again
        try:
            await job()
        except StorageFailedError:
            raise
        except OSError as error:
            if trio.current_time() >= log_again:
                log.error("checkpoint failed, retrying", reason=str(error))
                log_again = trio.current_time() + LOGGED_EVERY_S
            if directory is not None and error.errno in NO_ROOM:
                disks.directory_ran_out(directory, f"a checkpoint failed: {error}")
            else:
                disks.flush_failed(key, f"a checkpoint failed: {error}", no_room=error.errno in NO_ROOM)
            await trio.sleep(RETRY_S)
            return False
        except Exception:
            job_failures.add("checkpoint")
            disks.flush_failed(key, "a checkpoint failed; see the log", no_room=False)
            with trio.move_on_after(backoff.next()):
                await stop_wanted.wait()
        else:
            backoff.reset()
            log_again = 0.0
            disks.flushed(key)
        return True

    return attempt

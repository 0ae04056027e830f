"""Waiting for the first of several jobs, which raises single errors, and retries while the metadata service is
unavailable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

import trio

from quire.metadata.errors import MetadataUnavailableError
from quire.metadata.store import Watch

T = TypeVar("T")

RETRY_S: Final = 1.0
"""Seconds between attempts while the metadata service cannot be reached."""


async def first_of(*jobs: Callable[[], Awaitable[object]], name: str) -> None:
    """Run all jobs until one ends, and cancel the others. Its failure is raised without a group."""
    failure: Exception | None = None

    async with trio.open_nursery() as nursery:

        async def work(job: Callable[[], Awaitable[object]]) -> None:
            nonlocal failure
            try:
                await job()
            except Exception as error:
                failure = failure or error
            nursery.cancel_scope.cancel()

        for job in jobs:
            nursery.start_soon(work, job, name=name)
    if failure is not None:
        raise failure


async def first_change(watches: Iterable[Watch]) -> None:
    """Wait until one of the watches reports a change; the others keep a change they have."""
    await first_of(*[watch.next for watch in watches], name="watch of several")


async def until_available(call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `call`, retrying while it raises MetadataUnavailableError. `call` must be safe to repeat."""
    while True:
        try:
            return await call()
        except MetadataUnavailableError:
            await trio.sleep(RETRY_S)

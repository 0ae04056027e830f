"""Stopping: SIGINT and SIGTERM end a command in order, a second one at once."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio


class StopRequest:
    """Request to end a command, and the scope that it cancels."""

    def __init__(self) -> None:
        self.interrupted = False
        self.scope = trio.CancelScope()
        """Cancelled by the first signal: what runs in it ends, what follows it is still done."""


@asynccontextmanager
async def stoppable() -> AsyncIterator[StopRequest]:
    """Yield a Stop. The block as a whole is cancelled by the second signal."""
    stop = StopRequest()
    with trio.CancelScope() as whole:
        async with trio.open_nursery() as nursery:
            with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:

                async def watch() -> None:
                    async for _ in signals:
                        if stop.interrupted:
                            whole.cancel()
                        stop.interrupted = True
                        stop.scope.cancel()

                nursery.start_soon(watch)
                yield stop
                nursery.cancel_scope.cancel()


def run_async(work: Callable[[], Awaitable[int]]) -> int:
    """Run a command; return its exit code. An error comes out of the groups that nurseries make of it."""
    from quire.world.unwrap import first_leaf

    try:
        return trio.run(work)
    except BaseExceptionGroup as group:
        raise first_leaf(group) from group

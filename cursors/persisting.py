"""Waiting for what was acknowledged to become durable."""

from __future__ import annotations

from collections.abc import Callable

import trio

from cursors.errors import CursorError


async def wait_for(persisted: Callable[[Callable[[CursorError | None], None]], None]) -> None:
    """Wait until `persisted` calls back. Raises the CursorError that it calls back with."""
    done = trio.Event()
    outcome: list[CursorError | None] = []

    def told(error: CursorError | None) -> None:
        outcome.append(error)
        done.set()

    persisted(told)
    await done.wait()
    if outcome[0] is not None:
        raise outcome[0]

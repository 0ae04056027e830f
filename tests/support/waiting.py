"""Waits for what has no event of its own, each with a deadline; what has one is awaited."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable

import trio

WITHIN_S = 60.0
"""Seconds within which a condition must hold, if a test names no other; virtual ones under a clock that jumps."""
FIRST_PAUSE_S = 0.001
LONGEST_PAUSE_S = 0.05
GROWTH = 1.5
"""Each pause is so much longer than the one before: short waits end soon, and long ones ask seldom."""


async def until(condition: Callable[[], object | Awaitable[object]], what: str = "", within: float = WITHIN_S) -> None:
    """Let other tasks run until the condition, which may be async, holds.

    Raises AssertionError if it does not within so many seconds.
    """
    pause = FIRST_PAUSE_S
    with trio.move_on_after(within):
        while True:
            holds = condition()
            if await holds if isawaitable(holds) else holds:
                return
            await trio.sleep(pause)
            pause = min(pause * GROWTH, LONGEST_PAUSE_S)
    raise AssertionError(_too_late(what, within))


def wait_until(condition: Callable[[], object], what: str = "", within: float = WITHIN_S) -> None:
    """Block until the condition holds: for other processes and threads, outside trio.

    Raises AssertionError if it does not within so many seconds.
    """
    deadline, pause = time.monotonic() + within, FIRST_PAUSE_S
    while not condition():
        assert time.monotonic() < deadline, _too_late(what, within)
        time.sleep(pause)
        pause = min(pause * GROWTH, LONGEST_PAUSE_S)


def _too_late(what: str, within: float) -> str:
    return f"it did not come to pass within {within:g} s" + (f": {what}" if what else "")

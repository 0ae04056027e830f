"""Waiting for what has no event to wait for: other processes, and what a client's own threads count."""

from __future__ import annotations

import time
from collections.abc import Callable


def poll_until(condition: Callable[[], bool], seconds: float, *, poll_s: float = 0.02) -> bool:
    """Ask every `poll_s` until it holds; False if it does not within so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(poll_s)
    return True

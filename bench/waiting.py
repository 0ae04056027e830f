"""Polling of conditions without an event: other processes, and counts of a client's own threads."""

from __future__ import annotations

import time
from collections.abc import Callable


def poll_until(condition: Callable[[], bool], seconds: float, *, poll_s: float = 0.02) -> bool:
    """Check every `poll_s` until the condition holds; return False if it does not within so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(poll_s)
    return True

"""Record of the messages of one subscription that expired."""

from __future__ import annotations


class Expiry:
    """Count of what expired since the topic was loaded."""

    __slots__ = ("expired", "last_ms", "running")

    def __init__(self) -> None:
        self.expired = 0
        """Entries."""
        self.last_ms = 0
        """Time of the last expiry, in ms since 1970; 0: none yet."""
        self.running = False

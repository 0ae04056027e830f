"""A producer or consumer of a connection that is being created."""

from __future__ import annotations

from typing import Protocol


class Pending(Protocol):
    """Creation as its connection knows it."""

    def withdraw(self) -> None:
        """End it: its client has closed what is being created."""

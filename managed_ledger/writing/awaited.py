"""An append that one task waits for."""

from __future__ import annotations

import trio


class AwaitedAppend:
    """Sink of one entry. `done` is set when it is durable, or failed: then `error` says why."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.error: Exception | None = None

    def confirmed(self, ledger_id: int, first_entry_id: int, count: int) -> None:
        self.done.set()

    def failed(self, error: Exception) -> None:
        self.error = error
        self.done.set()

"""What the handles of one ledger client share."""

from __future__ import annotations

import random  # noqa: TID251 - the type only; instances are handed down
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

from quire.ledger.bookie_client import BookieClient
from quire.ledger.deadlines import DeadlineWheel
from quire.metadata.ledgers import LedgerManager


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerConfig:
    """Limits of a ledger client."""

    add_timeout_s: float = 30.0
    """A bookie that has not acknowledged an entry for so long has failed. Pulsar: bookkeeperClientTimeoutInSeconds."""
    read_timeout_s: float = 30.0
    """A read that is not answered for so long goes to the next bookie."""
    retry_pause_s: float = 0.005
    """First pause before a request is repeated that a bookie refused because it has too much to do; doubles each time."""
    retry_pause_max_s: float = 0.2
    quarantine_s: float = 30.0
    """A bookie that failed a writer is not chosen again by that writer for so long."""
    metadata_attempts: int = 8
    """How often an update of ledger metadata is tried while the store is unavailable, with growing pauses."""
    recovery_window: int = 128
    """Entries that recovery reads ahead at most."""

    def __post_init__(self) -> None:
        assert min(self.add_timeout_s, self.read_timeout_s, self.retry_pause_s) > 0, "times are positive"
        assert min(self.metadata_attempts, self.recovery_window) > 0, "counts are positive"


class Afterwards:
    """Calls made in a pass of their own: what must not happen inside the caller's call happens right after it."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []
        self._work = trio.Event()

    def call(self, function: Callable[[], None]) -> None:
        """Call it soon, in order. It must not raise."""
        self._calls.append(function)
        self._work.set()

    async def run(self) -> None:
        """Make the calls, for ever."""
        while True:
            await self._work.wait()
            self._work = trio.Event()
            calls, self._calls = self._calls, []
            for call in calls:
                call()


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerContext:
    """The client's connections, metadata, tasks and limits."""

    ledgers: LedgerManager
    bookies: BookieClient
    available: Callable[[], list[str]]
    """Ids of the bookies that may be chosen now."""
    rng: random.Random
    wheel: DeadlineWheel
    afterwards: Afterwards
    nursery: trio.Nursery
    config: LedgerConfig

    def start(self, task: Callable[[], Awaitable[None]], name: str) -> None:
        """Start a task that ends by itself, owned by the client's nursery; nothing if the client is closed."""
        if not self.bookies.closed:
            self.nursery.start_soon(task, name=name)

"""Shared services: those of all cursors of a broker, and those of all cursors of one log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import trio

from cursors.config import CursorConfig
from cursors.doors import Ledgers, NewLedgers
from cursors.entry_chain import EntryChain
from cursors.flusher import Flusher
from quire.metadata.store import MetadataStore, Op
from quire.service.measuring.summaries import Histogram
from quire.world.doors import World


def _no_proof() -> Sequence[Op]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorServices:
    world: World
    metadata: MetadataStore
    ledgers: Ledgers
    nursery: trio.Nursery
    """Nursery of the tasks that create cursor ledgers; the broker's."""
    flusher: Flusher
    config: CursorConfig
    persist_times: Histogram = field(default_factory=Histogram)
    """Times in milliseconds to store acknowledgements in ledgers of cursors."""
    quorums: Callable[[], NewLedgers] | None = None
    """Quorums and placement of the next cursor ledger; None: those of `config`."""
    proof: Callable[[], Sequence[Op]] = _no_proof
    """Returns checks that accompany each write of a cursor's node, all or nothing, and prove ownership of the log.

    Raises CursorFencedError if the ownership is known to be lost."""
    confirm_ownership: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
    """Called after such a check failed: returns if this broker still has the log. Raises CursorFencedError,
    MetadataError."""

    def note_stored(self, chain: EntryChain | None) -> None:
        """Note that the last entry of a ledger was stored now."""
        if chain is not None:
            self.persist_times.observe(1000 * (trio.current_time() - chain.sent_at))

    @property
    def next_quorums(self) -> NewLedgers:
        return self.config if self.quorums is None else self.quorums()

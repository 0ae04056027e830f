"""What the cursors of a broker share, and what those of one log do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import trio

from cursors.config import CursorConfig
from cursors.doors import Ledgers, Quorums
from cursors.flusher import Flusher
from quire.metadata.store import MetadataStore, Op
from quire.world.doors import World


def _no_proof() -> Sequence[Op]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    world: World
    metadata: MetadataStore
    ledgers: Ledgers
    nursery: trio.Nursery
    """Owns the tasks that make cursor ledgers; the broker's."""
    flusher: Flusher
    config: CursorConfig
    quorums: Callable[[], Quorums] | None = None
    """Of the next cursor ledger; None: those of `config`."""
    proof: Callable[[], Sequence[Op]] = _no_proof
    """Checks that go with each write of a cursor's node, all or nothing: that the log is still ours. CursorFencedError if it
    is known not to be."""
    confirm_ownership: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
    """Asked when such a check failed: is the log ours all the same? CursorFencedError, MetadataError."""

    @property
    def next_quorums(self) -> Quorums:
        return self.config if self.quorums is None else self.quorums()

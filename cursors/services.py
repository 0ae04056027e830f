"""What the cursors of a broker share."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from cursors.config import CursorConfig
from cursors.doors import Ledgers
from cursors.flusher import Flusher
from quire.metadata.store import MetadataStore
from quire.world.doors import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    world: World
    metadata: MetadataStore
    ledgers: Ledgers
    nursery: trio.Nursery
    """Owns the tasks that make cursor ledgers; the broker's."""
    flusher: Flusher
    config: CursorConfig

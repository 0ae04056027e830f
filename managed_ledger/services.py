"""Services that the logs of a broker share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import trio

from cursors.doors import Ledgers
from cursors.services import CursorServices as CursorServices
from managed_ledger.config import ManagedLedgerConfig
from managed_ledger.entry_cache import CacheBudget
from managed_ledger.session import MetadataSession
from managed_ledger.tiers import Objects
from managed_ledger.writing.rollover import RolloverLimits
from quire.metadata.store import MetadataStore
from quire.service.gate import Gate
from quire.world.doors import World


class ClosedLog(Protocol):
    """A log that takes nothing any more."""

    @property
    def name(self) -> str: ...


class LogOwner(Protocol):
    """User of a log that has to give it up."""

    def fenced(self) -> None:
        """Note that another broker has the log. Called once; must not raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Shared services of the logs of a broker."""

    world: World
    metadata: MetadataStore
    ledgers: Ledgers
    nursery: trio.Nursery
    config: ManagedLedgerConfig
    budget: CacheBudget
    cursors: CursorServices
    recoveries: Gate
    """Limits cursors recovered concurrently, over all logs."""
    on_gone: Callable[[ClosedLog], None]
    """Called when the log is fenced or closed, so that a new open reads it again."""
    no_room: Callable[[], str] = str
    """Returns the certain reason why bookies accept no entries of logs; "" otherwise."""
    objects: Objects | None = None
    """Objects of offloaded ledgers; None: there is no storage for them."""
    limits: RolloverLimits = field(init=False)
    """Custom metadata of every log."""
    metadata_is_up: Callable[[], bool] = field(init=False)
    """Returns whether the metadata service is reachable, as far as known."""
    no_other_broker: bool = field(init=False)
    """True where no other process can write to the metadata."""

    def __post_init__(self) -> None:
        session = MetadataSession(self.metadata)
        object.__setattr__(self, "limits", RolloverLimits.of(self.config))
        object.__setattr__(self, "metadata_is_up", session.is_up)
        object.__setattr__(self, "no_other_broker", session.is_exclusive)

"""Configuration and shared state of a ledger client's handles."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from quire.ledger.bookies.alarms import Alarms
from quire.ledger.bookies.deadlines import DeadlineWheel
from quire.ledger.bookies.health import BookieHealth
from quire.ledger.bookies.pool import BookieClient, WireProtocol
from quire.ledger.bookies.watcher import BookieWatcher
from quire.ledger.client_stats import ClientStats
from quire.ledger.placement import EnsemblePlacementPolicy, PlacementConfig
from quire.ledger.read_config import ReadConfig
from quire.metadata.ledgers import LedgerManager
from quire.wire.bookkeeper import v2, v3
from quire.world.backoff import Backoff
from quire.world.doors import Rng
from quire.world.faults import Faults


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerConfig:
    """Limits and choices of a ledger client. Each field names the originals' key."""

    protocol: WireProtocol = "v2"
    """useV2WireProtocol: protocol used with bookies.

    With "v2" a second connection uses v3 for requests that v2 lacks.
    """
    frame_max: int = v2.ORIGINAL_FRAME_MAX
    """nettyMaxFrameSizeBytes: largest request in bytes that is sent to bookies, at most `v2.FRAME_MAX`.

    An original bookie closes the connection at every frame above its own setting, so a larger entry is refused.
    Recovery and repair send the entries of a ledger whatever their size.
    """
    add_timeout_s: float = 30.0
    """Seconds without an acknowledgement after which a bookie has failed. Pulsar: bookkeeperClientTimeoutInSeconds."""
    add_quorum_timeout_s: float | None = None
    """addEntryQuorumTimeoutSec: seconds without confirmation of an entry that end its writer; None for no limit."""
    read_timeout_s: float = 30.0
    """Seconds without an answer after which a read has failed at a bookie.

    Others are asked long before, see `reads`.
    """
    reads: ReadConfig = field(default_factory=ReadConfig)
    """Speculative reads, their order, batches, long polls."""
    retry_pause_s: float = 0.005
    """First pause before repeating a request that a busy bookie refused; it doubles each time."""
    retry_pause_max_s: float = 0.2
    quarantine_s: float = 30.0
    """Seconds for which a writer does not choose a bookie again that failed it."""
    delay_ensemble_change: bool = False
    """delayEnsembleChange: a failed bookie keeps its place while every write set can form an ack quorum without it.

    A read-only bookie is still replaced at once.
    """
    disable_ensemble_change: bool = False
    """disableEnsembleChange: failed bookies are not replaced but retried, without limit or until the add quorum
    timeout.
    """
    ensemble_changes_max: int | None = None
    """maxNumEnsembleChanges of one writer, after which it fails; None for no limit."""
    explicit_lac_interval_s: float = 0.0
    """explicitLacInterval: seconds between explicit LACs of a writer whose LAC was not carried by an entry; 0 for
    never.
    """
    placement: PlacementConfig = field(default_factory=PlacementConfig)
    """Choice of ensembles if a watcher reports racks; from a fixed list they are chosen at random."""
    pending_bytes_max: int | None = 64 << 20
    """Pending bytes above which a writer refuses appends until some are confirmed; None for no limit, if the caller has
    one.

    While a bookie is replaced nothing is confirmed, for minutes if the metadata service is down.
    """
    metadata_attempts: int = 8
    """Attempts to update ledger metadata while the store is unavailable, with growing pauses."""
    recovery_window: int = 128
    """Largest number of entries that recovery reads ahead; fewer if they could exceed `recovery.ASKED_BYTES_MAX`."""

    def __post_init__(self) -> None:
        assert min(self.add_timeout_s, self.read_timeout_s, self.retry_pause_s) > 0, "timeouts must be positive"
        assert self.add_quorum_timeout_s is None or self.add_quorum_timeout_s > 0, "timeouts must be positive"
        assert self.explicit_lac_interval_s >= 0, "explicit_lac_interval_s must not be negative; 0 means never"
        assert self.ensemble_changes_max is None or self.ensemble_changes_max >= 0, "must not be negative"
        assert 1024 <= self.frame_max <= v2.FRAME_MAX, "frame_max must be between 1024 and FRAME_MAX"
        assert min(self.metadata_attempts, self.recovery_window) > 0, "attempts and window must be positive"
        assert self.pending_bytes_max is None or self.pending_bytes_max > 0, "must be positive"

    def frame_max_of(self, *, deferred_sync: bool) -> int:
        """Return the largest version 2 frame of a writer; converted to version 3 it becomes longer.

        Args:
            deferred_sync: The writer defers syncs, so its adds are converted to version 3.

        Returns:
            The size in bytes, without the frame's length field.
        """
        return self.frame_max - (v3.ADD_EXTRA if deferred_sync or self.protocol == "v3" else 0)


class Afterwards:
    """Deferred calls, for actions that must not happen inside the current call but right after it."""

    def __init__(self, faults: Faults | None = None) -> None:
        self._faults = faults or Faults()
        self._calls: list[Callable[[], None]] = []
        self._work = trio.Event()

    def call(self, function: Callable[[], None]) -> None:
        """Call the function soon, in order. It must not raise."""
        self._calls.append(function)
        self._work.set()

    async def run(self) -> None:
        """Make the calls until cancelled."""
        while True:
            await self._work.wait()
            self._work = trio.Event()
            calls, self._calls = self._calls, []
            for call in calls:
                self._faults.call("deferred call of a ledger", call)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerContext:
    """Connections, metadata, tasks and limits of a client."""

    ledgers: LedgerManager
    bookies: BookieClient
    placement: EnsemblePlacementPolicy
    """Chooses bookies for ensembles, and the order in which the copies of an entry are read."""
    watcher: BookieWatcher | None
    """Registered bookies and their addresses; None if the client was given fixed ids."""
    rng: Rng
    wheel: DeadlineWheel
    afterwards: Afterwards
    nursery: trio.Nursery
    config: LedgerConfig
    health: BookieHealth = field(default_factory=BookieHealth)
    """Health of the bookies: failures, speed, load."""
    alarms: Alarms = field(default_factory=Alarms)
    stats: ClientStats = field(default_factory=ClientStats)
    faults: Faults = field(default_factory=Faults)
    """Receives exceptions of callbacks."""

    def backoff(self) -> Backoff:
        """Return the pauses between requests that bookies refuse as they have too much to do."""
        return Backoff(self.config.retry_pause_s, self.config.retry_pause_max_s, self.rng)

    def start(self, task: Callable[[], Awaitable[None]], name: str) -> None:
        """Start a task that ends by itself, owned by the client's nursery; no effect if the client is closed."""
        if not self.bookies.closed:
            self.nursery.start_soon(task, name=name)

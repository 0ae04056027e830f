"""What the handles of one ledger client share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from quire.ledger.bookies.alarms import Alarms
from quire.ledger.bookies.deadlines import DeadlineWheel
from quire.ledger.bookies.health import BookieHealth
from quire.ledger.bookies.pool import BookieClient, WireProtocol
from quire.ledger.bookies.watcher import BookieWatcher
from quire.ledger.placement import EnsemblePlacementPolicy, PlacementConfig
from quire.ledger.read_config import ReadConfig
from quire.metadata.ledgers import LedgerManager
from quire.wire.bookkeeper import v2, v3
from quire.world.backoff import Backoff
from quire.world.doors import Rng
from quire.world.faults import Faults


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerConfig:
    """Limits and choices of a ledger client. The names of the originals' keys stand with the fields."""

    protocol: WireProtocol = "v2"
    """useV2WireProtocol: what is spoken to bookies. With "v2" a second connection speaks v3 where v2 has no words."""
    frame_max: int = v2.ORIGINAL_FRAME_MAX
    """nettyMaxFrameSizeBytes: the largest request in bytes that is sent to bookies, at most `v2.FRAME_MAX`. An original bookie closes
    the connection at a frame above its own setting, each time, so a larger entry is refused. Recovery and repair send what a ledger
    has, whatever its size."""
    add_timeout_s: float = 30.0
    """A bookie that has not acknowledged an entry for so long has failed. Pulsar: bookkeeperClientTimeoutInSeconds."""
    add_quorum_timeout_s: float | None = None
    """addEntryQuorumTimeoutSec: an entry that is not confirmed for so long ends its writer; None for any time."""
    read_timeout_s: float = 30.0
    """A read that is not answered for so long has failed at that bookie; others are asked long before, see `reads`."""
    reads: ReadConfig = field(default_factory=ReadConfig)
    """Speculative reads, their order, batches, long polls."""
    retry_pause_s: float = 0.005
    """First pause before a request is repeated that a bookie refused because it has too much to do; doubles each time."""
    retry_pause_max_s: float = 0.2
    quarantine_s: float = 30.0
    """A bookie that failed a writer is not chosen again by that writer for so long."""
    delay_ensemble_change: bool = False
    """delayEnsembleChange: a failed bookie keeps its place as long as every write set can make an ack quorum without it.
    A bookie that is read-only is replaced at once all the same."""
    disable_ensemble_change: bool = False
    """disableEnsembleChange: failed bookies are not replaced but tried again, for ever or until the add quorum timeout."""
    ensemble_changes_max: int | None = None
    """maxNumEnsembleChanges of one writer, after which it fails; None for no limit."""
    explicit_lac_interval_s: float = 0.0
    """explicitLacInterval: how often a writer tells its LAC by itself if no entry carried it; 0 for never."""
    placement: PlacementConfig = field(default_factory=PlacementConfig)
    """How ensembles are chosen, where a watcher tells of racks; at random from a fixed list."""
    pending_bytes_max: int | None = 64 << 20
    """A writer with more bytes on their way than this takes no further append until some are confirmed; None for no limit, where
    the caller has one. While a bookie is replaced nothing is confirmed, for minutes if the metadata service is away."""
    metadata_attempts: int = 8
    """How often an update of ledger metadata is tried while the store is unavailable, with growing pauses."""
    recovery_window: int = 128
    """Entries that recovery reads ahead at most; fewer if they could be more than `recovery.ASKED_BYTES_MAX`."""

    def __post_init__(self) -> None:
        assert min(self.add_timeout_s, self.read_timeout_s, self.retry_pause_s) > 0, "times are positive"
        assert self.add_quorum_timeout_s is None or self.add_quorum_timeout_s > 0, "times are positive"
        assert self.explicit_lac_interval_s >= 0, "0 is never"
        assert self.ensemble_changes_max is None or self.ensemble_changes_max >= 0, "0 allows none"
        assert 1024 <= self.frame_max <= v2.FRAME_MAX, "a frame is a kilobyte to what is received"
        assert min(self.metadata_attempts, self.recovery_window) > 0, "counts are positive"
        assert self.pending_bytes_max is None or self.pending_bytes_max > 0, "a limit is positive"

    def frame_max_of(self, *, deferred_sync: bool) -> int:
        """Of the version 2 frames of a writer; what version 3 carries is longer on the way."""
        return self.frame_max - (v3.ADD_EXTRA if deferred_sync or self.protocol == "v3" else 0)


class Afterwards:
    """Calls made in a pass of their own: what must not happen inside the caller's call happens right after it."""

    def __init__(self, faults: Faults | None = None) -> None:
        self._faults = faults or Faults()
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
                self._faults.call("what a ledger does right after a call", call)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerContext:
    """The client's connections, metadata, tasks and limits."""

    ledgers: LedgerManager
    bookies: BookieClient
    placement: EnsemblePlacementPolicy
    """Chooses bookies for ensembles, and the order in which the copies of an entry are read."""
    watcher: BookieWatcher | None
    """Who is there, and where; None where the ids of the bookies are given."""
    rng: Rng
    wheel: DeadlineWheel
    afterwards: Afterwards
    nursery: trio.Nursery
    config: LedgerConfig
    health: BookieHealth = field(default_factory=BookieHealth)
    """Who failed, is slow, has much to do."""
    alarms: Alarms = field(default_factory=Alarms)
    faults: Faults = field(default_factory=Faults)
    """Where exceptions of callbacks go."""

    def backoff(self) -> Backoff:
        """Return the pauses between requests that bookies refuse as they have too much to do."""
        return Backoff(self.config.retry_pause_s, self.config.retry_pause_max_s, self.rng)

    def start(self, task: Callable[[], Awaitable[None]], name: str) -> None:
        """Start a task that ends by itself, owned by the client's nursery; nothing if the client is closed."""
        if not self.bookies.closed:
            self.nursery.start_soon(task, name=name)

"""Who is there: the bookies that take entries, those that only serve reads, where they are, and how to reach them.

    <root>/available                 children: writable bookies         BookieServiceInfo -> host, port
    <root>/available/readonly        children: read-only bookies        (empty, of an old bookie: its id is host:port)
    <root>/disableHealthCheck        while it is there, nobody is put into quarantine for its errors
    /bookies                         Pulsar's rack map

Each is watched and read again when it changed. While the metadata service cannot be reached, or after the session has
gone, what was known last stays true: bookies serve without it. Somebody who is listed as both is taken as read-only.

Source: BookKeeper's BookieWatcherImpl, DefaultBookieAddressResolver, BookieClientImpl.getFaultyBookies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import trio

from quire.ledger.bookies.link import BookieLink, Turn
from quire.ledger.bookies.link_tcp import address_of, tcp_links
from quire.ledger.bookies.quarantine import FaultCounts, NoFaults, Quarantine
from quire.ledger.placement.policy import Cluster
from quire.ledger.placement.topology import RackMap, decode_rack_map
from quire.metadata import bookies, paths
from quire.metadata.errors import (
    InvalidPathError,
    MalformedMetadataError,
    MetadataError,
    MetadataUnavailableError,
    NoNodeError,
    SessionExpiredError,
)
from quire.metadata.store import MetadataStore, Watch
from quire.service.log import get_logger
from quire.world.doors import Network, Rng
from quire.world.faults import Faults

log = get_logger(__name__)

RETRY_S = 1.0
"""Between attempts to read while the metadata service cannot be reached and does not say when it can."""
LOOK_UP_S = 2.0
"""So long a bookie's address is asked for before what is known of it must do: the service may be away."""


class BookieWatcher(Protocol):
    """What a ledger client knows of the bookies. `StoredBookies` is one."""

    @property
    def changed(self) -> trio.Event:
        """Set, and replaced by another, when the cluster changes."""

    def cluster(self) -> Cluster:
        """As it is known now; the same object until something changes."""

    def quarantine(self, bookie_id: str) -> None:
        """The bookie fails too often: prefer others for new fragments, for a time."""

    async def resolve(self, bookie_id: str) -> tuple[str, int]:
        """Host and port of a bookie, registered or not; OSError if nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatcherConfig:
    """What a watcher reads, and when a bookie goes into quarantine. The names of the originals' keys stand with the
    fields (BookKeeper's; Pulsar's)."""

    root: str = "/ledgers"
    rack_map_path: str = "/bookies"
    """Empty if there is none."""
    health_check: bool = False
    """bookieHealthCheckEnabled; bookkeeperClientHealthCheckEnabled (true)."""
    health_check_interval_s: float = 60.0
    """bookieHealthCheckIntervalSeconds; bookkeeperClientHealthCheckIntervalSeconds."""
    health_check_errors: int = 100
    """bookieErrorThresholdPerInterval; bookkeeperClientHealthCheckErrorThresholdPerInterval (5): so many in one interval
    are too many."""
    quarantine_s: float = 1800.0
    """bookieQuarantineTimeSeconds; bookkeeperClientHealthCheckQuarantineTimeInSeconds."""
    quarantine_ratio: float = 1.0
    """bookieQuarantineRatio; bookkeeperClientQuarantineRatio: how probable it is that a client does put it there, so that
    not all clients leave a bookie at once. 0 to 1."""

    def __post_init__(self) -> None:
        assert self.health_check_interval_s > 0, "an interval is positive"
        assert self.health_check_errors > 0, "a number of errors is positive"
        assert self.quarantine_s > 0, "a quarantine takes its time"
        assert 0 <= self.quarantine_ratio <= 1, "a probability is 0 to 1"


class StoredBookies:
    """A BookieWatcher of a metadata store. `run` watches; start it with `await nursery.start(watcher.run)`, and the first
    read is done when that returns."""

    def __init__(
        self,
        store: MetadataStore,
        rng: Rng,
        config: WatcherConfig | None = None,
        faults: FaultCounts | None = None,
    ) -> None:
        self._store = store
        self._rng = rng
        self._config = config or WatcherConfig()
        self._faults: FaultCounts = faults or NoFaults()
        self._writable: list[str] = []
        self._read_only: list[str] = []
        self._addresses: dict[str, tuple[str, int]] = {}
        """Of the bookies that are registered, and those known before."""
        self._racks = RackMap()
        self._weights: dict[str, int] = {}
        self._quarantine = Quarantine(self._config.quarantine_s)
        self._health_check = True
        self._cluster = Cluster(writable=())
        self._changed = trio.Event()

    @property
    def changed(self) -> trio.Event:
        return self._changed

    def cluster(self) -> Cluster:
        over = self._quarantine.release(trio.current_time())
        if over:
            log.info("bookies are no longer in quarantine", bookies=",".join(over))
            self._renew()
        return self._cluster

    def quarantine(self, bookie_id: str) -> None:
        if self._quarantine.put(bookie_id, trio.current_time()):
            log.warning("bookie in quarantine", bookie=bookie_id, seconds=self._config.quarantine_s)
            self._renew()

    def set_weights(self, weights: Mapping[str, int]) -> None:
        """What the bookies weigh from now on in a weighted draw, e.g. bytes free."""
        self._weights = dict(weights)
        self._renew()

    async def resolve(self, bookie_id: str) -> tuple[str, int]:
        """As it is registered now; else as it was known; else what its id says, `host:port`."""
        try:
            with trio.move_on_after(LOOK_UP_S):
                await self._learn_address(bookie_id)
        except MetadataError as error:
            log.info("bookie cannot be looked up", bookie=bookie_id, reason=str(error))
        return self._addresses.get(bookie_id) or await address_of(bookie_id)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch, until cancelled or the session has gone. Before the start is reported: NoNodeError if the cluster was
        never initialised, MetadataError."""
        available = paths.join(self._config.root, "available")
        reads: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            (paths.join(self._config.root, "disableHealthCheck"), self._read_switch),
            (paths.join(available, bookies.READONLY), self._read_readonly),
            (available, self._read_writable),
        ]
        if self._config.rack_map_path:
            reads.append((self._config.rack_map_path, self._read_racks))
        watches = [self._store.watch(path) for path, _ in reads]
        try:
            await self._store.children(available)
            for _, read in reads:
                await read()
            async with trio.open_nursery() as nursery:
                for watch, (path, read) in zip(watches, reads, strict=True):
                    nursery.start_soon(self._follow, watch, read, nursery.cancel_scope, name=f"watch of {path}")
                if self._config.health_check:
                    nursery.start_soon(self._check_health, name="bookie health check")
                task_status.started()
        finally:
            for watch in watches:
                watch.close()

    async def _follow(self, watch: Watch, read: Callable[[], Awaitable[None]], all_watching: trio.CancelScope) -> None:
        """Read again after each change."""
        try:
            while True:
                changed = await watch.next()
                await self._read_again(changed.path, read)
        except SessionExpiredError as error:
            if not all_watching.cancel_called:
                log.warning("bookies are no longer watched", reason=str(error), writable=len(self._writable))
            all_watching.cancel()

    async def _read_again(self, path: str, read: Callable[[], Awaitable[None]]) -> None:
        """Until it was read; SessionExpiredError. What the service refuses is told, and tried with the next change."""
        while True:
            try:
                return await read()
            except SessionExpiredError:
                raise
            except MetadataUnavailableError:
                await trio.sleep(RETRY_S)
            except MetadataError as error:
                log.warning("bookies cannot be read", path=path, reason=str(error))
                return None

    async def _read_writable(self) -> None:
        try:
            names = await bookies.available(self._store, root=self._config.root)
        except NoNodeError:
            names = []
        await self._learn_addresses(names, self._writable)
        self._writable = names
        self._renew()

    async def _read_readonly(self) -> None:
        try:
            names = await bookies.readonly(self._store, root=self._config.root)
        except NoNodeError:
            names = []
        await self._learn_addresses(names, self._read_only)
        self._read_only = names
        self._renew()

    async def _learn_addresses(self, names: Iterable[str], before: Iterable[str]) -> None:
        """Of those who have come."""
        known = frozenset(before)
        for bookie_id in names:
            if bookie_id not in known:
                await self._learn_address(bookie_id)

    async def _learn_address(self, bookie_id: str) -> None:
        try:
            info = await bookies.service_info(self._store, bookie_id, root=self._config.root)
        except (MalformedMetadataError, InvalidPathError) as error:
            log.warning("bookie cannot be reached by what is registered", bookie=bookie_id, reason=str(error))
            return
        endpoint = None if info is None else info.bookie_endpoint
        if endpoint is not None:
            self._addresses[bookie_id] = (endpoint.host, endpoint.port)

    async def _read_racks(self) -> None:
        node = await self._store.get(self._config.rack_map_path)
        try:
            self._racks = decode_rack_map(b"" if node is None else node.value)
        except MalformedMetadataError as error:
            log.warning("the rack map stays as it was", path=self._config.rack_map_path, reason=str(error))
        self._renew()

    async def _read_switch(self) -> None:
        self._health_check = await self._store.get(paths.join(self._config.root, "disableHealthCheck")) is None

    async def _check_health(self) -> None:
        """Put those with too many errors in an interval into quarantine."""
        config = self._config
        while True:
            await trio.sleep(config.health_check_interval_s)
            for bookie_id, errors in sorted(self._faults.take_errors().items()):
                too_many = errors >= config.health_check_errors and self._health_check
                if too_many and self._rng.random() < config.quarantine_ratio:
                    self.quarantine(bookie_id)

    def _renew(self) -> None:
        """Make the cluster anew; tell, if it is another."""
        read_only = frozenset(self._read_only)
        writable = tuple([each for each in self._writable if each not in read_only])
        locations = {}
        for bookie_id in dict.fromkeys([*self._racks.racks, *self._addresses, *self._writable, *self._read_only]):
            host, port = self._addresses.get(bookie_id, (None, None))
            location = self._racks.location(bookie_id, host, port)
            if location is not None:
                locations[bookie_id] = location
        cluster = Cluster(
            writable=writable,
            read_only=read_only,
            quarantined=self._quarantine.ids(),
            locations=locations,
            weights=self._weights,
        )
        if cluster != self._cluster:
            if (cluster.writable, cluster.read_only) != (self._cluster.writable, self._cluster.read_only):
                log.info("bookies", writable=",".join(writable), read_only=",".join(self._read_only))
            self._cluster = cluster
            changed, self._changed = self._changed, trio.Event()
            changed.set()


def watched_links(
    network: Network,
    nursery: trio.Nursery,
    watcher: BookieWatcher,
    *,
    turn: Turn | None = None,
    faults: Faults | None = None,
) -> Callable[[str], BookieLink]:
    """A `connect` for LedgerClient: links, whose tasks `nursery` owns, to where the watcher says that a bookie is."""
    return tcp_links(network, nursery, resolve=watcher.resolve, turn=turn, faults=faults)

"""Watcher of the cluster's bookies: writable and read-only ones, their locations and addresses.

    <root>/available                 children: writable bookies         BookieServiceInfo -> host, port
    <root>/available/readonly        children: read-only bookies        (empty, of an old bookie: its id is host:port)
    <root>/disableHealthCheck        while it exists, no bookie is quarantined for errors
    /bookies                         Pulsar's rack map

Each node is watched and read again after a change. While the metadata service cannot be reached, or after the session
has ended, the last known state remains in use: bookies serve without the service. A bookie that is listed as both
counts as read-only.

Source: BookKeeper's BookieWatcherImpl, DefaultBookieAddressResolver, BookieClientImpl.getFaultyBookies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import trio

from quire.ledger.bookies.authentication import BookieCredentials
from quire.ledger.bookies.link import BookieLink
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
from quire.world.outbox import Turn

if TYPE_CHECKING:
    from quire.world.tls_sides import ClientTls

log = get_logger(__name__)

RETRY_S = 1.0
"""Seconds between attempts to read while the metadata service cannot be reached and gives no time to retry."""
RACK_MAP_PATH = "/bookies"
LOCATE_RETRY_S = 60.0
"""Seconds after which a host without a location is asked for again."""

Locate = Callable[[Sequence[str]], Awaitable[Mapping[str, str]]]
"""Returns the locations of hosts; those that have none are left out. It raises nothing."""

LOOK_UP_S = 2.0
"""Seconds for looking up a bookie's address before the last known address is used: the service may be down."""


class BookieWatcher(Protocol):
    """A ledger client's view of the bookies. `StoredBookies` implements this."""

    @property
    def changed(self) -> trio.Event:
        """Set, and replaced by another, when the cluster changes."""

    def cluster(self) -> Cluster:
        """Return the cluster as known now; the same object until something changes."""

    def quarantine(self, bookie_id: str) -> None:
        """Quarantine a bookie that fails too often: prefer others for new fragments, for some time."""

    async def resolve(self, bookie_id: str) -> tuple[str, int]:
        """Return host and port of a bookie, registered or not; OSError if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatcherConfig:
    """Configuration of a watcher. Each field names the originals' keys (BookKeeper's; Pulsar's)."""

    root: str = "/ledgers"
    rack_map_path: str = RACK_MAP_PATH
    """Path of the rack map, empty if there is none."""
    health_check: bool = False
    """bookieHealthCheckEnabled; bookkeeperClientHealthCheckEnabled (true)."""
    health_check_interval_s: float = 60.0
    """bookieHealthCheckIntervalSeconds; bookkeeperClientHealthCheckIntervalSeconds."""
    health_check_errors: int = 100
    """bookieErrorThresholdPerInterval; bookkeeperClientHealthCheckErrorThresholdPerInterval (5): number of errors in
    one interval that leads to quarantine.
    """
    quarantine_s: float = 1800.0
    """bookieQuarantineTimeSeconds; bookkeeperClientHealthCheckQuarantineTimeInSeconds."""
    quarantine_ratio: float = 1.0
    """bookieQuarantineRatio; bookkeeperClientQuarantineRatio: probability (0 to 1) that a client quarantines the
    bookie, so that not all clients abandon it at once.
    """
    weights_interval_s: float = 86400.0
    """getBookieInfoIntervalSeconds; bookkeeperClientGetBookieInfoIntervalSeconds: seconds between two questions to a
    bookie for its room, with `PlacementConfig.disk_weighted`.
    """
    weights_retry_s: float = 60.0
    """getBookieInfoRetryIntervalSeconds; bookkeeperClientGetBookieInfoRetryIntervalSeconds: the same after a failure.
    """
    weights_answer_s: float = 5.0
    """getBookieInfoTimeoutSecs: seconds to wait for an answer."""
    locate: Locate | None = None
    """reppDnsResolverClass: the source of locations; None: the rack map."""

    def __post_init__(self) -> None:
        assert self.health_check_interval_s > 0, "health_check_interval_s must be positive"
        assert self.health_check_errors > 0, "health_check_errors must be positive"
        assert self.quarantine_s > 0, "quarantine_s must be positive"
        assert self.weights_interval_s > 0, "weights_interval_s must be positive"
        assert self.weights_retry_s > 0, "weights_retry_s must be positive"
        assert 0 <= self.quarantine_ratio <= 1, "quarantine_ratio must be between 0 and 1"


class StoredBookies:
    """Watcher of the bookies in a metadata store.

    Start it with `await nursery.start(watcher.run)`; the first read is done when that returns.
    """

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
        """Addresses of the registered bookies, and of those known earlier."""
        self._racks = RackMap()
        self._located: dict[str, str | None] = {}
        """Locations of hosts by `locate`; None for a host that it was asked for in vain."""
        self._weights: dict[str, int] = {}
        self._quarantine = Quarantine(self._config.quarantine_s)
        self._health_check = True
        self._cluster = Cluster(writable=())
        self._changed = trio.Event()
        self._listed = trio.Event()
        """Set, and replaced by another, when bookies were listed again."""

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
        """Set the weights of bookies in a weighted draw, e.g. bytes free."""
        self._weights = dict(weights)
        self._renew()

    async def resolve(self, bookie_id: str) -> tuple[str, int]:
        """Return the registered address, else the last known one, else the address in its id, `host:port`."""
        try:
            with trio.move_on_after(LOOK_UP_S):
                await self._learn_address(bookie_id)
        except MetadataError as error:
            log.info("address of a bookie cannot be looked up", bookie=bookie_id, reason=str(error))
        return self._addresses.get(bookie_id) or await address_of(bookie_id)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled or until the session has ended.

        Before the start is reported: NoNodeError if the cluster was never initialised, MetadataError.
        """
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
            await self._locate_hosts(lambda host: host not in self._located)
            async with trio.open_nursery() as nursery:
                for watch, (path, read) in zip(watches, reads, strict=True):
                    nursery.start_soon(self._follow, watch, read, nursery.cancel_scope, name=f"watch of {path}")
                if self._config.locate is not None:
                    nursery.start_soon(self._keep_located, name="locations of bookies")
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
                log.warning("watch of bookies ended", reason=str(error), writable=len(self._writable))
            all_watching.cancel()

    async def _read_again(self, path: str, read: Callable[[], Awaitable[None]]) -> None:
        """Read until it succeeds; SessionExpiredError.

        A refusal by the service is logged, and retried after the next change.
        """
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
        self._list_changed()

    async def _read_readonly(self) -> None:
        try:
            names = await bookies.readonly(self._store, root=self._config.root)
        except NoNodeError:
            names = []
        await self._learn_addresses(names, self._read_only)
        self._read_only = names
        self._list_changed()

    async def _learn_addresses(self, names: Iterable[str], before: Iterable[str]) -> None:
        """Read the addresses of new bookies."""
        known = frozenset(before)
        for bookie_id in names:
            if bookie_id not in known:
                await self._learn_address(bookie_id)

    async def _learn_address(self, bookie_id: str) -> None:
        try:
            info = await bookies.service_info(self._store, bookie_id, root=self._config.root)
        except (MalformedMetadataError, InvalidPathError) as error:
            log.warning("registration of a bookie has no usable address", bookie=bookie_id, reason=str(error))
            return
        endpoint = None if info is None else info.bookie_endpoint
        if endpoint is not None:
            self._addresses[bookie_id] = (endpoint.host, endpoint.port)

    async def _read_racks(self) -> None:
        node = await self._store.get(self._config.rack_map_path)
        try:
            self._racks = decode_rack_map(b"" if node is None else node.value)
        except MalformedMetadataError as error:
            log.warning("keeping the previous rack map", path=self._config.rack_map_path, reason=str(error))
        self._renew()

    def _host(self, bookie_id: str) -> str:
        """Return the host that a bookie is registered at, else that of its id."""
        return self._addresses[bookie_id][0] if bookie_id in self._addresses else bookie_id.rpartition(":")[0]

    async def _locate_hosts(self, is_wanted: Callable[[str], bool]) -> None:
        """Ask for the locations of hosts of bookies."""
        if self._config.locate is None:
            return
        hosts = sorted({self._host(each) for each in (*self._writable, *self._read_only)})
        wanted = [host for host in hosts if host and is_wanted(host)]
        if wanted:
            found = await self._config.locate(wanted)
            self._located.update({host: found.get(host) for host in wanted})
            self._renew()

    async def _keep_located(self) -> None:
        """Ask for the hosts of new bookies, and again for those that have no location."""
        retry_at = trio.current_time() + LOCATE_RETRY_S
        while True:
            changed = self._listed
            await self._locate_hosts(lambda host: host not in self._located)
            if trio.current_time() >= retry_at:
                await self._locate_hosts(lambda host: self._located.get(host) is None)
                retry_at = trio.current_time() + LOCATE_RETRY_S
            with trio.move_on_at(retry_at):
                await changed.wait()

    def _list_changed(self) -> None:
        listed, self._listed = self._listed, trio.Event()
        listed.set()
        self._renew()

    async def _read_switch(self) -> None:
        self._health_check = await self._store.get(paths.join(self._config.root, "disableHealthCheck")) is None

    async def _check_health(self) -> None:
        """Quarantine bookies with too many errors in an interval."""
        config = self._config
        while True:
            await trio.sleep(config.health_check_interval_s)
            for bookie_id, errors in sorted(self._faults.take_errors().items()):
                too_many = errors >= config.health_check_errors and self._health_check
                if too_many and self._rng.random() < config.quarantine_ratio:
                    self.quarantine(bookie_id)

    def _renew(self) -> None:
        """Build the cluster again; notify if it differs."""
        read_only = frozenset(self._read_only)
        locates = self._config.locate is not None
        # One whose location was not asked for yet takes no entries, because they might all be in one rack.
        there = [each for each in self._writable if not locates or self._host(each) in self._located]
        writable = tuple([each for each in there if each not in read_only])
        locations = {}
        for bookie_id in dict.fromkeys([*self._racks.racks, *self._addresses, *self._writable, *self._read_only]):
            host, port = self._addresses.get(bookie_id, (None, None))
            if locates:
                location = self._located.get(self._host(bookie_id))
            else:
                location = self._racks.location(bookie_id, host, port)
            if location is not None:
                locations[bookie_id] = location
        cluster = Cluster(
            writable=writable,
            read_only=read_only,
            quarantined=self._quarantine.ids(),
            locations=locations,
            groups=self._racks.groups,
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
    tls: ClientTls | None = None,
    credentials: BookieCredentials | None = None,
) -> Callable[[str], BookieLink]:
    """Return a `connect` function for LedgerClient whose links use the watcher's addresses and `nursery`."""
    return tcp_links(
        network,
        nursery,
        resolve=watcher.resolve,
        turn=turn,
        faults=faults,
        tls=tls,
        credentials=credentials,
    )

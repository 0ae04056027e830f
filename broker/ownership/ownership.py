"""Ownership of topics in a cluster: the shell around bundles, leases, the living brokers and the decisions.

What holds:
- A topic is served only while its bundle's lease is held (`check`, before and after its log is opened), and a bundle is
  taken only in one step with a check of the namespace's boundaries.
- A bundle that was lost, its node seen with another broker's value, is closed at once, and nothing is written for it.
- While the metadata service is away, what is held goes on being served; nothing new is taken.
- A lookup is not answered with a broker that does not answer itself: it is held until the bundle has an owner that
  does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from broker.background import see_through
from broker.errors import ServiceNotReadyError, translated
from broker.ownership.affinity.store import Affinity
from broker.ownership.balance import Balancer, Reporter
from broker.ownership.brokers import Brokers
from broker.ownership.bundles import RANGE_EQUALLY, Bundle, Bundles, hash_of, split_points
from broker.ownership.config import OwnershipOptions
from broker.ownership.errors import BundleSplitError, NoBrokerError, NotOwnerError
from broker.ownership.isolation_store import IsolationStore
from broker.ownership.lease import Lease, LeaseState
from broker.ownership.leases import Leases
from broker.ownership.load_reports import TopicCounters
from broker.ownership.lookup import Connect, Redirect
from broker.ownership.namespaces import Namespaces, heartbeat_broker, heartbeat_namespace
from broker.ownership.own_credentials import OwnCredentials
from broker.ownership.peers import Peers
from broker.ownership.placement import Placement
from broker.ownership.urls import joined
from broker.ownership.values import LocalBroker
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.wire.pulsar.names import NamespaceName, TopicName
from quire.world.backoff import Backoff
from quire.world.doors import World
from quire.world.tasks import for_each

if TYPE_CHECKING:
    from quire.world.tls_sides import ClientTls

__all__ = ["LocalBroker", "Ownership", "OwnershipOptions"]

log = get_logger(__name__)

UNLOADS_AT_ONCE_MAX = 16
"""Bundles that are released at the same time."""
HAND_OVER_S = 1.0
"""Time that a client waits which arrives before its bundle does."""
OFFER_AGAIN_S = 0.05
OFFER_AGAIN_MAX_S = 1.0
"""First and longest pause between offers of a bundle to a broker that has not seen yet that it is free."""


class Ownership:
    """Ownership of one broker. `run` must run; `owns` and `owned` answer from memory, at once."""

    def __init__(
        self,
        world: World,
        metadata: MetadataStore,
        me: LocalBroker,
        options: OwnershipOptions | None = None,
        *,
        tls: ClientTls | None = None,
        own: OwnCredentials | None = None,
    ) -> None:
        """Take the parts it uses. `tls`, `own`: for connections to other brokers, with TLS and with the credentials of
        this one; None: without."""
        self.options = options = options or OwnershipOptions()
        self._rng = world.rng
        self.me = me
        self.namespaces = Namespaces(metadata, options)
        self.namespaces.on_change = self._bundles_changed
        self.on_lost: Callable[[Bundle], None] = _ignore
        """Set by the broker: close the bundle's topics at once, and write nothing for them. Must not raise or wait."""
        self.on_unload: Callable[[Bundle, str | None], Awaitable[None]] = _nothing_to_unload
        """Set by the broker: close the bundle's topics; the second argument has the URLs of the next broker, with
        commas, if it is known."""
        self.counters: Callable[[], Iterable[TopicCounters]] = tuple
        """Set by the broker: the counts of its loaded topics."""
        self.peers = Peers(world.network, options, tls, own)
        self.reporter = Reporter(me, options, world.clock)
        self.brokers = Brokers(
            metadata, me, options, lambda: self.reporter.value, lambda: self._placement.brokers_changed()
        )
        self.leases = Leases(metadata, me.owner, options, lambda lease: self._lost(lease))
        self.health_topic = f"persistent://{heartbeat_namespace(me.id)}/healthcheck"
        self.affinity = Affinity(metadata, self.namespaces, IsolationStore(metadata), options)
        self._placement = Placement(
            me, options, self.namespaces, self.leases, self.brokers, self.peers, self.affinity, self.reporter.changed
        )
        self.balancer = Balancer(self)
        self._splitting: set[Bundle] = set()
        self._nursery: trio.Nursery | None = None

    # Life

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Register, lead or follow, keep the leases, and report, until cancelled. Reports as started when registered.

        Raises SessionExpiredError if the store goes on with no session."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await nursery.start(self.namespaces.run, name="namespaces")
                await nursery.start(self.leases.run, name="leases")
                await nursery.start(self.brokers.run, name="brokers")
                nursery.start_soon(self._report, name="load reports")
                nursery.start_soon(self.balancer.run, name="load balancing")
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def options_changed(self) -> None:
        """Obey the options as they are now, where something waits for a time that they say."""
        self.balancer.options_changed()
        self.reporter.changed()

    async def _report(self) -> None:
        await self.reporter.run(self.brokers, lambda: self.counters(), self.bundle_of, self.owned)

    async def release_all(self) -> None:
        """Stop gracefully: deregister, close the topics of every bundle, release it. The caller sets the deadline."""
        self._placement.stopping = True
        await self.brokers.leave()

        async def give_up(lease: Lease) -> None:
            await self._unload(lease, None)

        held = list(self.leases.held())
        for lease in held:
            # Unloading is not announced: the other brokers expect the bundles of a deregistered broker to become
            # free.
            lease.state = LeaseState.UNLOADING
        await for_each(held, give_up, at_once=UNLOADS_AT_ONCE_MAX, name="give up bundles")

    # Queries of the broker

    def owns(self, name: TopicName) -> bool:
        """Return whether the topic's bundle is this broker's, from memory, at once."""
        bundles = self.namespaces.known_bundles(name.namespace_name)
        if bundles is None:
            return False
        lease = self.leases.find(bundles.find(name))
        return lease is not None and lease.state is LeaseState.ACTIVE

    async def check(self, name: TopicName) -> None:
        """Raise NotOwnerError unless the topic's bundle is this broker's, by a recent look at its node.

        A bundle whose node is of a former session is retaken, since the other brokers send clients here while that node
        exists. Raises TopicNotFoundError, MetadataUnavailableError (then nothing new is loaded)."""
        bundles = await self.namespaces.bundles(name.namespace_name)
        lease = await self.leases.get(bundles.find(name))
        if lease.state is LeaseState.NONE and lease.inherited:
            await self._placement.take_again(lease, bundles)
        if lease.state is LeaseState.NONE and lease.owner is not None and lease.owner.disabled:
            await self._expect(lease)
        with translated(f"cannot read the owner of {name.full}"):
            if await lease.ensure() and self.owns(name):
                return
        raise NotOwnerError(
            f"Namespace bundle for topic ({name.full}) not served by this instance:{self.me.id}. Please redo the "
            "lookup. "
            f"Request is denied: namespace={name.namespace_path}"
        )

    async def _expect(self, lease: Lease) -> None:
        """Wait a moment for a bundle that another broker is unloading, perhaps to this one: its clients may arrive
        first."""
        with trio.move_on_after(HAND_OVER_S):
            while lease.state is LeaseState.NONE and (lease.owner is None or lease.owner.disabled):
                await lease.changed.wait()

    def bundle_of(self, name: TopicName) -> Bundle | None:
        """Return the topic's bundle, if the namespace is known."""
        bundles = self.namespaces.known_bundles(name.namespace_name)
        return None if bundles is None else bundles.find(name)

    def owned(self) -> list[Bundle]:
        """Return the owned bundles in order, including those that are being unloaded."""
        return sorted(lease.bundle for lease in self.leases.held())

    async def lookup(self, name: TopicName, *, authoritative: bool) -> Connect | Redirect:
        """Return the broker that serves the topic, or the one to ask. Waits for a result as long as the options allow.

        Raises TopicNotFoundError (no such namespace), NoBrokerError, BeingUnloadedError, ServiceNotReadyError,
        MetadataUnavailableError."""
        return await self._placement.lookup(name, authoritative=authoritative)

    async def unload(self, bundle: Bundle, *, destination: str | None = None) -> None:
        """Close the bundle's topics and release it.

        The broker `destination` (an id) takes it, or else the next one that is asked. If it has not taken it
        `unload_timeout_s` after the call, a warning is logged. Raises NotOwnerError, NoBrokerError (no such broker is
        registered)."""
        to: LocalBroker | None = None
        if destination is not None:
            report = self.brokers.reports.get(destination)
            if report is None:
                raise NoBrokerError(f"there is no broker {destination}")
            if report.broker == self.me:
                return
            to = report.broker
        # Completed even if the caller is cancelled: a half unloaded bundle has no owner.
        await self._see_through(partial(self._unload_to, bundle, to), f"unload {bundle}")

    async def _unload_to(self, bundle: Bundle, to: LocalBroker | None) -> None:
        lease = self.leases.find(bundle)
        if lease is None or not await lease.disable():
            raise NotOwnerError(f"{bundle} is not served by this instance:{self.me.id}")
        deadline = trio.current_time() + self.options.unload_timeout_s
        await self._unload(lease, None if to is None else joined(to))
        if to is not None and not await self._offer(lease, self.peers.url_of(to), deadline):
            log.warning("bundle not taken by its destination", bundle=str(bundle), destination=to.broker_url)

    async def _offer(self, lease: Lease, url: str, deadline: float) -> bool:
        """Offer a released bundle to a broker, again until the deadline while no broker has it. Return whether it
        has taken it.

        Its watch on the bundle's node may be late. Until it has seen the release, it answers that this broker has the
        bundle, or waits for longer than an offer does."""
        backoff = Backoff(OFFER_AGAIN_S, OFFER_AGAIN_MAX_S, self._rng)
        while (owner := await self.peers.offer(url, lease.bundle)) != url:
            is_late = owner == self.peers.url_of(self.me) if owner is not None else await self.peers.answers(url)
            is_free = lease.state is LeaseState.NONE and lease.owner is None
            pause_s = backoff.next()
            if not is_late or not is_free or trio.current_time() + pause_s >= deadline:
                return False
            await trio.sleep(pause_s)
        return True

    async def split(
        self,
        bundle: Bundle,
        *,
        algorithm: str = RANGE_EQUALLY,
        unload: bool = False,
        positions: Sequence[int] = (),
    ) -> None:
        """Split an owned bundle; the parts are owned too, and no client notices. With `unload` they are then released.

        Raises NotOwnerError, BundleSplitError, NoSuchBundleError, BundlesChangedError, MetadataUnavailableError."""
        await self._see_through(partial(self._split_by, bundle, algorithm, positions), f"split {bundle}")
        if unload:
            for each in (await self.namespaces.bundles(bundle.namespace)).all():
                if bundle.low <= each.low < bundle.high:
                    await self.unload(each)

    async def _split_by(self, bundle: Bundle, algorithm: str, positions: Sequence[int]) -> None:
        lease = self.leases.find(bundle)
        if lease is None or lease.state is not LeaseState.ACTIVE:
            raise NotOwnerError(f"{bundle} is not served by this instance:{self.me.id}")
        if heartbeat_broker(bundle.namespace) is not None or bundle in self._splitting:
            raise BundleSplitError(f"{bundle} cannot be split, or is being split")
        bundles = await self.namespaces.bundles(bundle.namespace)
        mine = [each.name for each in self.counters() if bundle.has(each.name)]
        weights = [(hash_of(name), self.reporter.rate_of(name)) for name in mine]
        after = bundles.split(bundle, split_points(bundle, algorithm, positions=positions, weights=weights))
        parts = [part for part in after.all() if part not in bundles]
        self._splitting.add(bundle)
        try:
            await self._split(bundles, after, parts)
        finally:
            self._splitting.discard(bundle)
        await lease.release()
        log.info("bundle split", bundle=str(bundle), parts=[part.range for part in parts])
        self.reporter.changed()

    async def _split(self, before: Bundles, after: Bundles, parts: Sequence[Bundle]) -> None:
        """Create the parts' nodes first, then change the boundaries; the caller releases the whole bundle's node.

        So a reader with stale boundaries still finds an owner."""
        leases = [await self.leases.get(part) for part in parts]
        try:
            with translated(f"{before.namespace} cannot be split"):
                for part in leases:
                    if not await part.acquire(await self.namespaces.boundaries_check(before)):
                        raise BundleSplitError(f"{part.bundle} is owned by another broker")
                await self.namespaces.update_bundles(before, lambda _: after)
        finally:
            if self.namespaces.known_bundles(before.namespace) != after:
                for part in leases:
                    await part.release()

    async def _see_through(self, job: Callable[[], Awaitable[None]], name: str) -> None:
        if self._nursery is None:
            raise ServiceNotReadyError("the broker is not registered")
        await see_through(self._nursery, job, name=name)

    # Releasing bundles

    async def _unload(self, lease: Lease, url: str | None) -> None:
        """Close the topics of a lease that is being unloaded, then release it."""
        with trio.move_on_after(self.options.unload_timeout_s) as scope:
            await self.on_unload(lease.bundle, url)
        if scope.cancelled_caught:
            log.warning("topics not closed in time, dropping them", bundle=str(lease.bundle))
            self.on_lost(lease.bundle)
        await lease.release()
        self.reporter.changed()

    def _lost(self, lease: Lease) -> None:
        self.on_lost(lease.bundle)
        self.reporter.changed()

    def _bundles_changed(self, namespace: NamespaceName, bundles: Bundles | None) -> None:
        """Release bundles that no longer exist after a change of boundaries, unless this broker splits them."""
        if self._nursery is None:
            return
        for lease in self.leases.held():
            bundle = lease.bundle
            gone = bundle.namespace == namespace and (bundles is None or bundle not in bundles)
            if gone and bundle not in self._splitting and lease.state is LeaseState.ACTIVE:
                self._nursery.start_soon(self._give_up, lease, name=f"release {bundle}")

    async def _give_up(self, lease: Lease) -> None:
        if await lease.disable():
            await self._unload(lease, None)


def _ignore(bundle: Bundle) -> None:
    pass


async def _nothing_to_unload(bundle: Bundle, url: str | None) -> None:
    pass

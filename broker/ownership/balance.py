"""Load reports of this broker, and the leader's decisions over all reports: the shell around `load` and
`load_reports`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import trio

from broker.config import SERVER_VERSION
from broker.errors import BrokerError
from broker.ownership.affinity.rules import PlacementRules
from broker.ownership.affinity.store import Affinity
from broker.ownership.brokers import Brokers
from broker.ownership.bundles import RANGE_EQUALLY, Bundle, parse_range
from broker.ownership.config import OwnershipOptions
from broker.ownership.load import Move, placed, to_isolate, to_shed, to_split
from broker.ownership.load_reports import Meter, TopicCounters, should_report
from broker.ownership.namespaces import Namespaces, heartbeat_broker
from broker.ownership.peers import Peers
from broker.ownership.values import BrokerReport, BundleLoad, LocalBroker, encode_report
from broker.slices import run_through
from quire.service.log import get_logger
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import NamespaceName, TopicName
from quire.world.doors import Clock

log = get_logger(__name__)

SETTLE_S = 1.0
"""Wait after bundles were taken or lost before that is reported, since more may follow."""


class Reporter:
    """Measurement of this broker's load, and the report in its node."""

    def __init__(self, me: LocalBroker, options: OwnershipOptions, clock: Clock) -> None:
        self.value = b""
        """LocalBrokerData of the last report that was due."""
        self._me = me
        self._options = options
        self._clock = clock
        self._started_ms = clock.wall_ms()
        self.loads: dict[str, BundleLoad] = {}
        """Load of each owned bundle, as last measured, reported or not."""
        self._reported: dict[str, BundleLoad] = {}
        self._reported_at = trio.current_time()
        self._meter = Meter(self._reported_at)
        self._changed = trio.Event()
        self._encode()

    def changed(self) -> None:
        """Report soon, because bundles were taken or lost."""
        self._changed.set()

    def rate_of(self, name: TopicName) -> float:
        """Return the messages per second of a loaded topic, in and out, as last measured."""
        return self._meter.topic_rates.get(name, 0.0)

    async def run(
        self,
        brokers: Brokers,
        counters: Callable[[], Iterable[TopicCounters]],
        bundle_of: Callable[[TopicName], Bundle | None],
        owned: Callable[[], list[Bundle]],
    ) -> None:
        """Report whenever one is due, until cancelled."""
        while True:
            with trio.move_on_after(self._options.report_interval_s):
                await self._changed.wait()
                await trio.sleep(SETTLE_S)
            self._changed = trio.Event()
            now = trio.current_time()
            current = await run_through(self._meter.measure(now, counters(), bundle_of, owned()))
            self.loads = current
            if should_report(self._reported, current, now - self._reported_at, self._options):
                self._reported, self._reported_at = current, now
                self._encode()
                await brokers.publish()

    def _encode(self) -> None:
        self.value = encode_report(
            BrokerReport(broker=self._me, bundles=self._reported),
            version=SERVER_VERSION,
            started_ms=self._started_ms,
            now_ms=self._clock.wall_ms(),
            persistent=self._options.persistent_topics,
            non_persistent=self._options.non_persistent_topics,
        )


class Balanced(Protocol):
    """Parts of Ownership that the balancer needs."""

    brokers: Brokers
    affinity: Affinity
    namespaces: Namespaces
    options: OwnershipOptions
    peers: Peers

    async def unload(self, bundle: Bundle, *, destination: str | None = None) -> None: ...

    async def split(self, bundle: Bundle, *, algorithm: str = RANGE_EQUALLY) -> None: ...


class Balancer:
    """Balancer that runs while this broker leads: moves bundles away from overloaded brokers, and splits large
    bundles."""

    def __init__(self, ownership: Balanced) -> None:
        self._ownership = ownership
        self._moved_at: dict[str, float] = {}
        self.bundles_moved = 0
        """Bundles moved to another broker since the start of this process, by this broker as the leader."""
        self.brokers_relieved = 0
        """Brokers that had them, counted in each round."""
        self.bundles_split = 0
        self._changed = trio.Event()

    def options_changed(self) -> None:
        """Notice that the interval may have changed."""
        self._changed.set()

    async def _interval(self) -> None:
        """Wait for the next round."""
        began = trio.current_time()
        while (left := began + self._ownership.options.shed_interval_s - trio.current_time()) > 0:
            with trio.move_on_after(left):
                await self._changed.wait()
                self._changed = trio.Event()

    async def run(self) -> None:
        """Balance until cancelled."""
        options = self._ownership.options
        while True:
            await self._interval()
            if not self._ownership.brokers.is_leader:
                continue
            await self.isolate()
            if not options.load_balancing:
                continue
            if options.auto_split:
                await self.split()
            if options.auto_shed:
                await self.shed()

    async def isolate(self) -> None:
        """Move bundles away from brokers that may not serve them, once: by the isolation policies, and by the
        anti-affinity groups of namespaces."""
        rules = await self._rules()
        if rules:
            await self._move_all(to_isolate(self._ownership.brokers.reports, self._may_move, rules.allowed))

    async def shed(self) -> None:
        """Move bundles away from overloaded brokers, once."""
        rules = await self._rules()
        if rules is not None:
            reports, options = self._ownership.brokers.reports, self._ownership.options
            await self._move_all(to_shed(reports, self._may_move, options, rules.allowed if rules else None))

    async def _rules(self) -> PlacementRules | None:
        """Return the rules about the brokers of bundles; None if they are not known now."""
        try:
            return await self._ownership.affinity.rules(placed(self._ownership.brokers.reports))
        except BrokerError as error:
            log.warning("bundles not balanced", reason=str(error))
            return None

    async def _move_all(self, moves: Iterable[Move]) -> None:
        now, grace_s = trio.current_time(), self._ownership.options.shed_grace_s
        self._moved_at = {bundle: at for bundle, at in self._moved_at.items() if now - at < grace_s}
        sources: set[str] = set()
        for move in moves:
            self._moved_at[move.bundle] = now
            try:
                if await self._move(move):
                    self.bundles_moved += 1
                    self.brokers_relieved += move.source not in sources
                    sources.add(move.source)
            except BrokerError as error:
                log.warning("bundle not moved", bundle=move.bundle, reason=str(error))

    def _may_move(self, text: str) -> bool:
        bundle = _bundle(text)
        return bundle is not None and heartbeat_broker(bundle.namespace) is None and text not in self._moved_at

    async def split(self) -> None:
        """Split large bundles, once."""
        reports = self._ownership.brokers.reports
        namespaces = {bundle.rpartition("/")[0] for report in reports.values() for bundle in report.bundles}
        try:
            counts = {each: await self._count(each) for each in sorted(namespaces)}
            for bundle, broker_id in to_split(reports, counts, self._ownership.options):
                await self._split(bundle, broker_id)
        except BrokerError as error:
            log.warning("bundles not split", reason=str(error))

    async def _count(self, namespace: str) -> int:
        try:
            return len(await self._ownership.namespaces.bundles(NamespaceName.parse(namespace)))
        except InvalidNameError:
            return 0

    async def _move(self, move: Move) -> bool:
        """Move a bundle; return whether its broker has handed it over."""
        bundle = _bundle(move.bundle)
        source = self._ownership.brokers.reports.get(move.source)
        if bundle is None or source is None:
            return False
        log.info("moving bundle to another broker", bundle=move.bundle, to=move.destination)
        if move.source == self._ownership.brokers.me.id:
            await self._ownership.unload(bundle, destination=move.destination)
            return True
        return await self._ownership.peers.unload(source.broker, bundle, move.destination)

    async def _split(self, text: str, broker_id: str) -> None:
        bundle = _bundle(text)
        source = self._ownership.brokers.reports.get(broker_id)
        if bundle is None or source is None:
            return
        log.info("splitting bundle that is too large", bundle=text)
        if broker_id == self._ownership.brokers.me.id:
            await self._ownership.split(bundle)
        elif not await self._ownership.peers.split(source.broker, bundle, RANGE_EQUALLY):
            return
        self.bundles_split += 1


def _bundle(text: str) -> Bundle | None:
    """Return the bundle that a report names."""
    namespace, _, ends = text.rpartition("/")
    try:
        return Bundle(NamespaceName.parse(namespace), *parse_range(ends))
    except (InvalidNameError, ValueError):
        return None

"""Lookups: the owner of a bundle or, if there is none, the broker to take it. The shell around `lookup` and `load`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import trio

from broker.errors import MetadataUnavailableError, ServiceNotReadyError, translated
from broker.ownership.affinity.store import Affinity
from broker.ownership.brokers import Brokers
from broker.ownership.bundles import Bundle, Bundles
from broker.ownership.config import OwnershipOptions
from broker.ownership.errors import BeingUnloadedError, BundlesChangedError, NoBrokerError
from broker.ownership.lease import Lease, LeaseState
from broker.ownership.leases import Leases
from broker.ownership.load import choose, placed
from broker.ownership.lookup import Chosen, Connect, Has, Leader, Redirect, Step, connect, decide, redirect
from broker.ownership.namespaces import Namespaces, heartbeat_broker
from broker.ownership.peers import Peers
from broker.ownership.values import BrokerReport, LocalBroker
from quire.wire.pulsar.names import TopicName


class Placement:
    """Lookups of one broker; its `Ownership` runs the parts this uses."""

    def __init__(
        self,
        me: LocalBroker,
        options: OwnershipOptions,
        namespaces: Namespaces,
        leases: Leases,
        brokers: Brokers,
        peers: Peers,
        affinity: Affinity,
        on_taken: Callable[[], None],
    ) -> None:
        """Take the parts it uses. `on_taken` is called when a bundle was taken."""
        self.stopping = False
        """True once this broker takes no more bundles."""
        self._me = me
        self._options = options
        self._namespaces = namespaces
        self._leases = leases
        self._brokers = brokers
        self._peers = peers
        self._affinity = affinity
        self._on_taken = on_taken
        self._assigned: defaultdict[str, set[str]] = defaultdict(set)
        """Bundles given to each broker that its report does not contain yet."""
        self._changed = trio.Event()
        """Set, and replaced, when brokers joined, left, or reported."""
        self._last_reports: dict[str, BrokerReport] = {}

    async def lookup(self, name: TopicName, *, authoritative: bool) -> Connect | Redirect:
        """Look up a topic; see `Ownership.lookup`."""
        has = Has.NOBODY
        hold_until = trio.current_time() + self._options.metadata_hold_s
        with trio.move_on_after(self._options.lookup_timeout_s):
            while True:
                try:
                    bundles = await self._namespaces.bundles(name.namespace_name)
                    lease = await self._leases.get(bundles.find(name))
                    changed = lease.changed
                    has = await self._has(lease)
                    if has is Has.NOBODY:
                        answer = await self._place(lease, bundles, authoritative)
                        if answer is not None:
                            return answer
                        continue
                    step = decide(has, stopping=self.stopping)
                    if step is Step.ACQUIRE:
                        await self._acquire(lease, bundles)
                        continue
                except (MetadataUnavailableError, NoBrokerError):
                    # After an expired session no broker is registered for a moment, not even this one.
                    if self.stopping or trio.current_time() >= hold_until:
                        raise
                    with trio.move_on_after(self._options.probe_again_s):
                        await self._changed.wait()
                    continue
                if step is Step.CONNECT_TO_ME:
                    return connect(self._me, mine=True)
                if step is Step.CONNECT_TO_OWNER and lease.owner is not None:
                    return connect(lease.owner, mine=False)
                with trio.move_on_after(self._options.probe_again_s):
                    await changed.wait()
        if has in (Has.ME_UNLOADING, Has.ANOTHER_UNLOADING):
            raise BeingUnloadedError(f"Namespace bundle of {name.full} is being unloaded")
        raise ServiceNotReadyError(f"the owner of {name.full} does not answer, and no other may have its bundle yet")

    async def _has(self, lease: Lease) -> Has:
        """Return the known state of a bundle's ownership."""
        if lease.state is not LeaseState.NONE:
            return Has.ME if lease.state is LeaseState.ACTIVE else Has.ME_UNLOADING
        owner = lease.owner
        if owner is None:
            return Has.ME_BEFORE if lease.inherited else Has.NOBODY
        if owner.disabled:
            return Has.ANOTHER_UNLOADING
        lives = any(owner.is_at(report.broker.broker_url) for report in self._brokers.reports.values())
        answers = lives and await self._answers_until(self._peers.url_of(owner), lease.changed)
        if answers is None:
            return await self._has(lease)
        return Has.ANOTHER if answers else Has.ANOTHER_GONE

    async def _answers_until(self, broker_url: str, changed: trio.Event) -> bool | None:
        """Return whether a broker answers; None if something changed before the result."""
        answers = self._peers.known(broker_url)
        if answers is None:
            async with trio.open_nursery() as nursery:

                async def give_up() -> None:
                    await changed.wait()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(give_up)
                answers = await self._peers.answers(broker_url)
                nursery.cancel_scope.cancel()
        return answers

    async def _place(self, lease: Lease, bundles: Bundles, authoritative: bool) -> Redirect | None:
        """Take a bundle without an owner, or return the broker to ask. None: look again."""
        pinned = heartbeat_broker(lease.bundle.namespace)
        leader = None if pinned is not None else await self._answering(self._brokers.leader)
        chosen = await self._choose(lease.bundle, pinned)
        step = decide(
            Has.NOBODY,
            authoritative=authoritative and pinned in (None, self._me.id),
            leader=Leader.NONE if leader is None else Leader.ME if leader == self._me else Leader.ANOTHER,
            chosen=Chosen.NOBODY if chosen is None else Chosen.ME if chosen == self._me else Chosen.ANOTHER,
            stopping=self.stopping,
        )
        if step is Step.REDIRECT_TO_LEADER and leader is not None:
            return redirect(leader, authoritative=False)
        if step is Step.REDIRECT_TO_CHOSEN and chosen is not None:
            self._assigned[chosen.id].add(str(lease.bundle))
            return redirect(chosen, authoritative=True)
        if step is not Step.ACQUIRE:
            raise NoBrokerError(f"no broker is available to take {lease.bundle}")
        await self._acquire(lease, bundles)
        return None

    async def take_again(self, lease: Lease, bundles: Bundles) -> None:
        """Retake a bundle whose node is of a former session of this broker, unless it is stopping. The caller looks
        again."""
        if not self.stopping:
            await self._acquire(lease, bundles)

    async def _acquire(self, lease: Lease, bundles: Bundles) -> None:
        """Take a bundle, unless another broker was faster or the boundaries have changed. The caller looks again."""
        try:
            with translated(f"{lease.bundle} cannot be taken"):
                if not await lease.acquire(await self._namespaces.boundaries_check(bundles)):
                    return
        except BundlesChangedError:
            await self._namespaces.reread(lease.bundle.namespace)
            return
        if self._leases.find(lease.bundle) is not lease:
            await lease.release()  # the lease was dropped meanwhile and must be registered again
            return
        self._assigned[self._me.id].add(str(lease.bundle))
        self._on_taken()

    async def _answering(self, broker_id: str | None) -> LocalBroker | None:
        """Return that broker, if it is registered and answers."""
        if broker_id == self._me.id:
            return None if self.stopping else self._me
        while broker_id is not None and (report := self._brokers.reports.get(broker_id)) is not None:
            answers = await self._answers_until(self._peers.url_of(report.broker), self._changed)
            if answers is not None:
                return report.broker if answers else None
        return None

    async def _choose(self, bundle: Bundle, pinned: str | None) -> LocalBroker | None:
        """Return the best broker for a bundle, of those that answer and may serve it."""
        reports = self._brokers.reports
        if pinned is None:
            now = placed(reports)
            allowed = (await self._affinity.rules_for(bundle.namespace, now)).allowed(str(bundle), now)
        else:
            allowed = {pinned}
        expected = await self._affinity.quotas.expected()
        candidates = {each: report for each, report in reports.items() if each in allowed}
        while (broker_id := choose(candidates, self._assigned, expected)) is not None:
            if (found := await self._answering(broker_id)) is not None:
                return found
            del candidates[broker_id]
        return None

    def brokers_changed(self) -> None:
        """Wake lookups, because brokers joined, left, or reported."""
        self._changed.set()
        self._changed = trio.Event()
        reports = self._brokers.reports
        for broker_id, report in reports.items():
            if self._last_reports.get(broker_id) is not report:
                self._assigned.pop(broker_id, None)
        self._last_reports = dict(reports)

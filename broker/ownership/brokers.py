"""The registered brokers: this one, the others, and the leader.

    /loadbalance/brokers/<host:webport>     ephemeral, LocalBrokerData: the broker lives, and this is its load
    /loadbalance/leader                     ephemeral, LeaderBroker: the tie breaker

A node of this broker that belongs to another session is from its former session, or from an earlier process at the same
addresses, and is replaced. The leader only gives advice: two of them disturb only the balance.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from broker.errors import BrokerError
from broker.ownership.config import OwnershipOptions
from broker.ownership.following import follow
from broker.ownership.values import (
    BrokerReport,
    LocalBroker,
    decode_leader,
    decode_report,
    encode_leader,
)
from quire.metadata.errors import (
    BadVersionError,
    MetadataError,
    MetadataUnavailableError,
    NodeExistsError,
    NoNodeError,
)
from quire.metadata.store import Kind, MetadataStore, Node
from quire.service.log import get_logger

log = get_logger(__name__)

BROKERS = "/loadbalance/brokers"
LEADER = "/loadbalance/leader"


class Brokers:
    """Registered brokers, as seen by this one; see the module. Everything not `async` answers from memory, at once."""

    def __init__(
        self,
        metadata: MetadataStore,
        me: LocalBroker,
        options: OwnershipOptions,
        report: Callable[[], bytes],
        on_change: Callable[[], None],
    ) -> None:
        """Take the sources of this broker's node.

        Args:
            report: the value this node should have now.
            on_change: called when brokers joined, left or reported, or the leader changed.
        """
        self.me = me
        self.reports: dict[str, BrokerReport] = {}
        """The registered brokers, and their last reports, by id."""
        self.leader: str | None = None
        """The broker id of the leader; None: there is none."""
        self._metadata = metadata
        self._options = options
        self._report = report
        self._on_change = on_change
        self._leaving = False
        self._listed = False
        self._ready = trio.Event()
        """Set when this broker is registered, has listed the brokers and is among them; or when it leaves before
        that."""
        self._nursery: trio.Nursery
        self._following: dict[str, trio.CancelScope] = {}

    @property
    def is_leader(self) -> bool:
        return self.leader == self.me.id and not self._leaving

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Register and follow the others until cancelled. Reports as started when registered and all are listed."""
        recheck_s = self._options.recheck_s
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for path, look in (
                (f"{BROKERS}/{self.me.id}", self._look_at_own),
                (BROKERS, self._look_at_all),
                (LEADER, self._look_at_leader),
            ):
                following = partial(follow, self._metadata, path, look, recheck_s=recheck_s)
                nursery.start_soon(following, name=f"follow {path}")
            await self._ready.wait()
            task_status.started()

    async def publish(self) -> None:
        """Publish this broker's load. Does nothing while the service is away: the next look publishes it."""
        try:
            await self._look_at_own()
        except MetadataError as error:
            log.debug("load not reported", reason=str(error))

    async def leave(self) -> None:
        """Deregister, so that no client is sent here and another broker leads.

        Best effort: both nodes end with the session."""
        self._leaving = True
        self._ready.set()  # release tasks that would wait for it forever
        for path in (f"{BROKERS}/{self.me.id}", LEADER):
            try:
                node = await self._metadata.get(path)
                if node is not None and node.mine:
                    await self._metadata.delete(path)
            except NoNodeError:
                pass
            except MetadataError as error:
                log.warning("not deregistered", path=path, reason=str(error))
        self._on_change()

    # Looks

    async def _look_at_own(self) -> None:
        if self._leaving:
            return
        await self._take(f"{BROKERS}/{self.me.id}", self._report(), self._is_me)

    async def _look_at_leader(self) -> None:
        if not self._leaving:
            await self._take(LEADER, encode_leader(self.me), lambda value: decode_leader(value) == self.me.id)
        node = await self._metadata.get(LEADER)
        try:
            leader = None if node is None else decode_leader(node.value)
        except BrokerError as error:
            log.warning("the leader cannot be read", reason=str(error))
            leader = None
        if leader != self.leader:
            log.info("leader", broker=leader, mine=leader == self.me.id)
            self.leader = leader
            self._on_change()

    async def _look_at_all(self) -> None:
        try:
            names = await self._metadata.children(BROKERS)
        except NoNodeError:
            names = []
        for gone in [name for name in self._following if name not in names]:
            self._following.pop(gone).cancel()
            if self.reports.pop(gone, None) is not None:
                log.info("broker gone", broker=gone)
        new = [name for name in names if name not in self._following]
        for name in new:
            await self._look_at(name)
            scope = self._following[name] = trio.CancelScope()
            self._nursery.start_soon(self._follow, name, scope, name=f"follow broker {name}")
        self._listed = True
        self._reports_changed()

    def _reports_changed(self) -> None:
        own = self.reports.get(self.me.id)
        if self._listed and own is not None and own.broker == self.me:
            self._ready.set()
        self._on_change()

    async def _follow(self, name: str, scope: trio.CancelScope) -> None:
        with scope:
            await follow(
                self._metadata, f"{BROKERS}/{name}", lambda: self._look_at(name), recheck_s=self._options.recheck_s
            )

    async def _look_at(self, name: str) -> None:
        node = await self._metadata.get(f"{BROKERS}/{name}")
        report = None
        if node is not None:
            try:
                report = decode_report(name, node.value)
            except BrokerError as error:
                log.warning("report of a broker cannot be read", broker=name, reason=str(error))
        if report is None:
            # The broker is away, or was for a moment: the list of all brokers decides.
            if self.reports.pop(name, None) is not None:
                self._on_change()
        elif self.reports.get(name) != report:
            self.reports[name] = report
            self._reports_changed()

    # Nodes of this broker

    async def _take(self, path: str, value: bytes, is_ours: Callable[[bytes], bool]) -> None:
        """Create the node `path` if no other broker has it."""
        while True:
            node = await self._metadata.get(path)
            if node is None:
                try:
                    await self._metadata.create(path, value, kind=Kind.EPHEMERAL, make_parents=True)
                    return
                except NodeExistsError:
                    continue
            if node.mine:
                if node.value != value:
                    await self._put(path, value, node)
                return
            if not self._was_ours(node, is_ours):
                return
            try:
                await self._metadata.delete(path, node.version)
            except (NoNodeError, BadVersionError):
                continue

    async def _put(self, path: str, value: bytes, node: Node) -> None:
        try:
            await self._metadata.put(path, value, node.version)
        except (NoNodeError, BadVersionError) as error:
            raise MetadataUnavailableError(f"{path} changed meanwhile") from error

    def _was_ours(self, node: Node, is_ours: Callable[[bytes], bool]) -> bool:
        try:
            return is_ours(node.value)
        except BrokerError:
            return False

    def _is_me(self, value: bytes) -> bool:
        if decode_report(self.me.id, value).broker == self.me:
            return True
        log.warning("another broker uses this broker's id", broker=self.me.id)
        return False

"""One bundle's node: its owner, as last seen, and whether that is this broker.

What holds:
- The lease is held from the creation of this broker's ephemeral node until it is released, or until the node is seen
  with another broker's value (confirmed loss). Neither a lost connection nor an expired session is a loss: then the
  node is
  made again, if no other broker was faster.
- A node with this broker's addresses and another session is from its former session, or from an earlier process, and is
  replaced.
- The lease is no proof: what makes two writers impossible is the fence of the ledgers and the compare-and-set of the
  list.

Source: reference names NamespaceEphemeralData, OwnershipCache, ResourceLock of the original.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

import trio

from broker.errors import MetadataRefusedError
from broker.ownership.bundles import Bundle
from broker.ownership.errors import BundlesChangedError
from broker.ownership.following import follow
from broker.ownership.values import Owner, decode_owner, encode_owner
from quire.metadata.errors import (
    BadVersionError,
    MetadataUnavailableError,
    NodeExistsError,
    NoNodeError,
)
from quire.metadata.store import ANY_VERSION, Check, Create, Kind, MetadataStore, Node
from quire.service.log import get_logger

log = get_logger(__name__)


class LeaseState(Enum):
    """State of the bundle, as far as this broker is concerned."""

    NONE = "none"
    ACTIVE = "active"
    UNLOADING = "unloading"
    """Still this broker's, until its topics are closed."""


class Lease:
    """Lease of one bundle; see the module. `run` must run while its state is used."""

    def __init__(
        self,
        store: MetadataStore,
        bundle: Bundle,
        me: Owner,
        *,
        recheck_s: float,
        fresh_s: float,
        on_lost: Callable[[Lease], None],
    ) -> None:
        self.bundle = bundle
        self.state = LeaseState.NONE
        self.owner: Owner | None = None
        """The broker that has the node, as last seen; None: no broker, or a former session of this one."""
        self.inherited = False
        """True if the node belongs to a former session of this broker."""
        self.known = False
        """True once the node was read."""
        self.changed = trio.Event()
        """Set, and replaced, at any change of the lease."""
        self._store = store
        self._me = me
        self._recheck_s = recheck_s
        self._fresh_s = fresh_s
        self._on_lost = on_lost
        self._lock = trio.Lock()
        self._verified_at = float("-inf")

    @property
    def idle(self) -> bool:
        """Return whether the bundle is neither this broker's nor about to be."""
        return self.state is LeaseState.NONE and not self._lock.locked()

    async def run(self) -> None:
        """Follow the node until cancelled."""
        await follow(self._store, self.bundle.path, self.look, recheck_s=self._recheck_s)

    async def look(self) -> None:
        """Read the node and act on it. At MetadataUnavailableError nothing changes."""
        async with self._lock:
            await self._look()

    async def _look(self) -> None:
        path = self.bundle.path
        while True:
            asked_at = trio.current_time()
            node = await self._store.get(path)
            if node is None:
                if self.state is LeaseState.NONE:
                    self._seen(None)
                    return
                try:
                    await self._store.create(path, self._value(), kind=Kind.EPHEMERAL, make_parents=True)
                except NodeExistsError:
                    continue
                log.info("bundle retaken in a new session", bundle=str(self.bundle))
                self._is_ours(asked_at)
                return
            if node.mine:
                if self.state is LeaseState.NONE:
                    # The answer to its creation, or deletion, was lost.
                    await self._drop()
                    continue
                if node.value != self._value():
                    await self._store.put(path, self._value(), ANY_VERSION)
                self._is_ours(asked_at)
                return
            owner = self._owner_of(node)
            if owner.is_at(self._me.broker_url):
                if self.state is LeaseState.NONE:
                    self._seen(None, inherited=True)
                    return
                await self._drop(node.version)
                continue
            self._is_anothers(owner)
            return

    async def ensure(self) -> bool:
        """Return whether the bundle is this broker's, by a look not older than `fresh_s`. Raises
        MetadataUnavailableError."""
        if self.state is LeaseState.ACTIVE and trio.current_time() - self._verified_at > self._fresh_s:
            asked_at = trio.current_time()
            async with self._lock:
                if self._verified_at < asked_at:
                    await self._look()
        return self.state is LeaseState.ACTIVE

    async def acquire(self, checks: Sequence[Check]) -> bool:
        """Take the bundle if no broker has it; return whether it is this broker's then.

        `checks` must hold in the step that creates the node. Raises BundlesChangedError; MetadataUnavailableError,
        after which the bundle may become this broker's later, and is released then."""
        path = self.bundle.path
        async with self._lock:
            while self.state is LeaseState.NONE:
                asked_at = trio.current_time()
                create = Create(path=path, value=encode_owner(self._me), kind=Kind.EPHEMERAL, make_parents=True)
                try:
                    await self._store.multi([*checks, create])
                except NodeExistsError:
                    node = await self._store.get(path)
                    if node is None:
                        continue
                    if not node.mine:
                        owner = self._owner_of(node)
                        if owner.is_at(self._me.broker_url):
                            await self._drop(node.version)
                            continue
                        self._seen(owner)
                        return False
                except (BadVersionError, NoNodeError) as error:
                    raise BundlesChangedError(f"the bundles of {self.bundle.namespace} have changed") from error
                self.state = LeaseState.ACTIVE
                self._is_ours(asked_at)
                log.info("bundle taken", bundle=str(self.bundle))
            return self.state is LeaseState.ACTIVE

    async def disable(self) -> bool:
        """Begin to release: no topic is loaded any more, and the other brokers see it. Return whether the bundle was
        held."""
        if self.state is not LeaseState.ACTIVE:
            return False
        self.state = LeaseState.UNLOADING
        self._tell()
        try:
            await self.look()
        except MetadataUnavailableError as error:
            log.warning("others do not know that the bundle is unloaded", bundle=str(self.bundle), reason=str(error))
        return self.state is LeaseState.UNLOADING

    async def release(self) -> None:
        """Release the bundle. A node that is unreachable now is deleted later by `run`, or ends with the session."""
        async with self._lock:
            if self.state is LeaseState.NONE:
                return
            self.state = LeaseState.NONE
            try:
                await self._look()
            except MetadataUnavailableError as error:
                self._seen(None)
                log.warning("bundle not given up yet", bundle=str(self.bundle), reason=str(error))
            else:
                log.info("bundle released", bundle=str(self.bundle))

    # Inside

    def _value(self) -> bytes:
        return encode_owner(self._me._replace(disabled=self.state is LeaseState.UNLOADING))

    async def _drop(self, version: int = ANY_VERSION) -> None:
        try:
            await self._store.delete(self.bundle.path, version)
        except (NoNodeError, BadVersionError):
            pass

    def _owner_of(self, node: Node) -> Owner:
        """Return the owner in a node; None if it cannot be read."""
        try:
            return decode_owner(node.value)
        except MetadataRefusedError as error:
            log.warning("owner of a bundle cannot be read", bundle=str(self.bundle), reason=str(error))
            return Owner(broker_url="", web_url="", disabled=True)

    def _is_ours(self, asked_at: float) -> None:
        self._verified_at = asked_at
        self._seen(self._me._replace(disabled=self.state is LeaseState.UNLOADING))

    def _is_anothers(self, owner: Owner) -> None:
        lost = self.state is not LeaseState.NONE
        self.state = LeaseState.NONE
        self._seen(owner)
        if lost:
            log.warning("bundle lost to another broker", bundle=str(self.bundle), owner=owner.broker_url)
            self._on_lost(self)

    def _seen(self, owner: Owner | None, *, inherited: bool = False) -> None:
        if not self.known or owner != self.owner or inherited != self.inherited:
            self.known = True
            self.owner = owner
            self.inherited = inherited
            self._tell()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

"""MetadataStore on a ZooKeeper ensemble, over kazoo.

Promises of the contract that ZooKeeper alone does not give:

- Missing parents are created in the same transaction as the node: all or nothing.
- Watches are persistent and coalesce: see `watches`.
- Lost connections. Reads are repeated when there is a connection, within the call's time. The outcome of a create is
  looked up: an ephemeral node is recognised by its session and time, a missing node is created again. If another client
  may have created the same persistent node, and for put, delete and multi, MetadataUnavailableError leaves it to the
  caller. Requests not sent yet wait. An answer out of order, and anything that breaks kazoo, counts as a lost
  connection too, and the session continues on the next: see `connection`.
- Lost answers of ephemeral sequential creates, which leave a node of unknown name. On the next connection every unknown
  node of this session in that folder is deleted, and the create is repeated. A node whose caller has gone is deleted
  too.
- Stale reads: a server may lag behind another client's newest write. Versions make that harmless for writes. A caller
  that must read the newest state calls `sync` first.

Sessions. With SessionExpiredPolicy.SHUTDOWN the end of the session is the end of the store, as the contract says. With
RECONNECT the store continues with a new session: calls in flight raise MetadataUnavailableError, `session` changes, the
listeners of `on_new_session` are called, and then every watch reports a change. Owners of ephemeral nodes watch them,
see that they are gone, and create them again (as `ephemerals.keep` does). `expired` is then only set if the store
itself ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import trio

from quire.metadata import paths
from quire.metadata.errors import MetadataError, MetadataUnavailableError, NoNodeError
from quire.metadata.local.watches import TreeWatch
from quire.metadata.store import ANY_VERSION, Create, Delete, Kind, Node, Op, Put
from quire.metadata.times import MetadataTimes, Operation, bytes_put
from quire.metadata.zookeeper.config import (
    ConnectString,
    SessionExpiredPolicy,
    Tls,
    ZooKeeperConfig,
    parse_connect_string,
)
from quire.metadata.zookeeper.pace import Pace
from quire.metadata.zookeeper.requests import check_op
from quire.metadata.zookeeper.session import Session
from quire.metadata.zookeeper.transactions import Transactions
from quire.world.doors import World

__all__ = [
    "ConnectString",
    "SessionExpiredPolicy",
    "Tls",
    "ZooKeeperConfig",
    "ZooKeeperStore",
    "open_store",
    "parse_connect_string",
]

T = TypeVar("T")


class ZooKeeperStore:
    """Client of one ensemble. Created by `open_store`."""

    def __init__(self, world: World, config: ZooKeeperConfig) -> None:
        self._offload = world.offload
        self._config = config
        self._closed = False
        self._session = Session(config, world.faults)
        self._transactions = Transactions(self._session)
        self._requests = self._session.requests
        self._pace = Pace(config.requests_per_second)
        self.times = MetadataTimes()

    @property
    def expired(self) -> trio.Event:
        return self._session.expired

    async def get(self, path: str) -> Node | None:
        paths.check(path)
        return await self._bounded("get", self._get, path)

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        kind: Kind = Kind.PERSISTENT,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        op = Create(path=path, value=value, kind=kind, sequential=sequential, make_parents=make_parents)
        check_op(op)
        self.times.put_bytes += len(value)
        return await self._bounded("put", self._transactions.create, op)

    async def put(self, path: str, value: bytes, version: int) -> int:
        op = Put(path=path, value=value, version=version)
        self.times.put_bytes += len(value)
        check_op(op)
        stat = await self._bounded("put", self._transactions.write, op)
        new_version: int = stat.version
        return new_version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        op = Delete(path=path, version=version)
        check_op(op)
        await self._bounded("del", self._transactions.write, op)
        self._session.orphans.forget(path)

    async def children(self, path: str) -> list[str]:
        paths.check(path)
        names: list[str] = await self._bounded("get", self._transactions.read, self._requests.children(path), path)
        return sorted(names)

    async def multi(self, ops: Sequence[Op]) -> list[str]:
        for index, op in enumerate(ops):
            try:
                check_op(op)
            except MetadataError as error:
                error.index = index
                raise
        if not ops:
            await trio.lowlevel.checkpoint()
            self._session.require()
            return []
        self.times.put_bytes += bytes_put(ops)
        return await self._bounded("put", self._transactions.commit, ops, False)

    def watch(self, path: str) -> TreeWatch:
        watch = self._session.watches.add(path)
        if self._session.has_ended:
            watch.fail(self._session.gone())
        return watch

    async def aclose(self) -> None:
        """End the session, so that its ephemeral nodes are deleted at once if the service can be reached.

        No effect if done before.
        """
        if self._closed:
            await trio.lowlevel.checkpoint()
            return
        self._closed = True
        self._session.close("the metadata store is closed")
        try:
            await self._offload.run(self._session.link.stop, name="zookeeper close")
        finally:
            self._session.closed()

    # ------------------------------------------------------------------------------------------ beyond the contract

    async def sync(self, path: str = paths.ROOT) -> None:
        """Wait until later reads see everything written before this call, by any client."""
        paths.check(path)
        await self._bounded("get", self._transactions.read, self._requests.sync(path), path)

    def on_new_session(self, listener: Callable[[int], None]) -> Callable[[], None]:
        """Call `listener(session)`, which must not raise or wait, when a new session has begun, before watches report
        it.

        Return a function that removes the listener.
        """
        self._session.listeners.append(listener)
        return partial(self._session.listeners.remove, listener)

    @property
    def session(self) -> int:
        """Return the id of the session, 64 bits, signed; 0 between two sessions."""
        return self._session.id

    @property
    def is_connected(self) -> bool:
        """Return whether there was a connection a moment ago; for health checks."""
        return self._session.is_connected

    async def start(self) -> None:
        """Connect; `open_store` calls it."""
        await self._session.connect()
        if await self.get(paths.ROOT) is None:
            chroot = self._config.chroot
            if not self._config.make_chroot:
                raise NoNodeError(
                    f"ZooKeeper at {self._session.servers} has no node {chroot}: make it, or correct the connect string"
                )
            await self._transactions.make_chroot(chroot, secure=self._config.secure)

    async def _bounded(self, operation: Operation, call: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run a call within its time limit."""
        self._session.require()
        await self._pace.wait()
        with self.times.of(operation):
            with trio.move_on_after(self._config.call_timeout_s):
                return await call(*args)
            self._session.require()
            raise MetadataUnavailableError(f"ZooKeeper did not answer within {self._config.call_timeout_s:g} s")

    async def _get(self, path: str) -> Node | None:
        try:
            value, stat = await self._transactions.read(self._requests.get(path), path)
        except NoNodeError:
            return None
        owner = stat.ephemeralOwner
        mine = owner != 0 and owner == self._session.id
        return Node(value or b"", stat.version, owner != 0, mine, session=owner, modified_ms=stat.mtime)


async def open_store(world: World, config: ZooKeeperConfig) -> ZooKeeperStore:
    """Open a store. MetadataUnavailableError if no server answers in time.

    SessionExpiredError if the credentials are refused, NoNodeError if the chroot is missing.
    """
    store = ZooKeeperStore(world, config)
    try:
        await store.start()
    except BaseException:
        with trio.CancelScope(shield=True):  # the thread must end, or it retries endlessly
            await store.aclose()
        raise
    return store

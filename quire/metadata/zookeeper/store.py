"""MetadataStore on a ZooKeeper ensemble, over kazoo.

What the contract promises, and where ZooKeeper alone would not give it:

- Parents on the way are made in the same transaction as the node: all or nothing.
- Watches stay and coalesce: see `watches`.
- A lost connection. Reads are done again when there is a connection, within the call's time. A create is looked for:
  an ephemeral one is recognised by its session and time, a node that is not there is made again; where another may have
  made the same persistent node, and for put, delete and multi, MetadataUnavailableError leaves it to the caller. What
  was not sent yet just waits. An answer out of turn, and whatever breaks kazoo, is a lost connection too, and the session
  goes on in the next: see `connection`.
- A lost answer of an ephemeral sequential create leaves a node whose name nobody knows. With the next connection every
  node of this session in that folder that nobody was told of is deleted, while the create is done again; so is a node
  whose asker has gone.
- Another client's newest write may be read late: a server answers from what it has. Versions make that harmless for
  writes; who must read the newest calls `sync` before.

Sessions. With SessionExpiredPolicy.SHUTDOWN the end of the session is the end of the store, as the contract says. With
RECONNECT it goes on with a new session: calls in flight raise MetadataUnavailableError, `session` is another number, the
listeners of `on_new_session` are called and then every watch is told. Whoever holds ephemeral nodes watches them, sees
that they are gone, and makes them anew (`ephemerals.keep` does). `expired` is then only set if the store itself ends.
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
from quire.metadata.zookeeper.config import (
    ConnectString,
    SessionExpiredPolicy,
    Tls,
    ZooKeeperConfig,
    parse_connect_string,
)
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
    """One client of an ensemble. Made by `open_store`."""

    def __init__(self, world: World, config: ZooKeeperConfig) -> None:
        self._offload = world.offload
        self._config = config
        self._closed = False
        self._session = Session(config, world.faults)
        self._transactions = Transactions(self._session)
        self._requests = self._session.requests

    @property
    def expired(self) -> trio.Event:
        return self._session.expired

    async def get(self, path: str) -> Node | None:
        paths.check(path)
        return await self._bounded(self._get, path)

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
        return await self._bounded(self._transactions.create, op)

    async def put(self, path: str, value: bytes, version: int) -> int:
        op = Put(path=path, value=value, version=version)
        check_op(op)
        stat = await self._bounded(self._transactions.write, op)
        new_version: int = stat.version
        return new_version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        op = Delete(path=path, version=version)
        check_op(op)
        await self._bounded(self._transactions.write, op)
        self._session.orphans.forget(path)

    async def children(self, path: str) -> list[str]:
        paths.check(path)
        names: list[str] = await self._bounded(self._transactions.read, self._requests.children(path), path)
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
        return await self._bounded(self._transactions.commit, ops, False)

    def watch(self, path: str) -> TreeWatch:
        watch = self._session.watches.add(path)
        if self._session.has_ended:
            watch.fail(self._session.gone())
        return watch

    async def aclose(self) -> None:
        """End the session, so that its ephemeral nodes go at once if the service can be reached. Fine if done before."""
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
        """What is read after it is no older than what anybody wrote before it."""
        paths.check(path)
        await self._bounded(self._transactions.read, self._requests.sync(path), path)

    def on_new_session(self, listener: Callable[[int], None]) -> Callable[[], None]:
        """Call `listener(session)`, which must not raise or wait, when another session has begun, before the watches
        are told. Returns what takes it back."""
        self._session.listeners.append(listener)
        return partial(self._session.listeners.remove, listener)

    @property
    def session(self) -> int:
        """The id of the session, 64 bits, signed; 0 between one and the next."""
        return self._session.id

    @property
    def is_connected(self) -> bool:
        """Whether there was a connection a moment ago; for health checks."""
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

    async def _bounded(self, call: Callable[..., Awaitable[T]], *args: Any) -> T:
        """A call within its time."""
        self._session.require()
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
    """Connect. MetadataUnavailableError if no server answers in time, SessionExpiredError if the credentials are
    refused, NoNodeError if the chroot is missing."""
    store = ZooKeeperStore(world, config)
    try:
        await store.start()
    except BaseException:
        with trio.CancelScope(shield=True):  # the thread must end, or it goes on trying for ever
            await store.aclose()
        raise
    return store

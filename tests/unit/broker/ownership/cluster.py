"""Ownerships of brokers on one metadata tree, in virtual time, with sessions that expire and are renewed, and a network
on which the test makes a broker answer, refuse or hang."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio

from broker import replies
from broker.config import BrokerOptions
from broker.errors import BrokerError
from broker.ownership.bundles import Bundle
from broker.ownership.config import OwnershipOptions
from broker.ownership.load_reports import TopicCounters
from broker.ownership.lookup import Connect
from broker.ownership.ownership import Ownership
from broker.ownership.values import LocalBroker
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import Op
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import NamespaceName, TopicName
from quire.world.doors import Buffer, Stream
from quire.world.socket_options import DEFAULT_OPTIONS, SocketOptions
from simulation.machines.metadata import HostMetadata
from tests.support.waiting import until
from tests.unit.managed_ledger.fake_ledgers import fake_world

SESSION_S = 3.0
OPTIONS = OwnershipOptions(cluster_name="test")
NAMESPACE = NamespaceName("public", "default")
TOPIC = TopicName.parse("persistent://public/default/orders")


def broker_named(name: str) -> LocalBroker:
    return LocalBroker(id=f"{name}:8080", broker_url=f"pulsar://{name}:6650", web_url=f"http://{name}:8080")


class Host:
    """One broker's process: its session, its ownership, and the calls that it received."""

    def __init__(self, cluster: Cluster, name: str, options: OwnershipOptions) -> None:
        self.cluster = cluster
        self.me = broker_named(name)
        self.metadata = HostMetadata(
            cluster.tree, random.Random(name), session_timeout_s=SESSION_S, late=0.0, latency_max_s=0.002
        )
        world = replace(fake_world(), network=cluster.network)
        self.ownership = Ownership(world, self.metadata, self.me, options)
        self.lost: list[Bundle] = []
        self.unloaded: list[tuple[Bundle, str | None]] = []
        self.topics: list[TopicCounters] = []
        self.closing_s = 0.0
        """Seconds that closing the topics of a bundle takes."""
        self.ownership.on_lost = self.lost.append
        self.ownership.on_unload = self._unload
        self.ownership.counters = lambda: self.topics
        self.requests: list[bytes] = []
        """Log of HTTP requests."""
        self.scope = trio.CancelScope()

    async def _unload(self, bundle: Bundle, url: str | None) -> None:
        await trio.sleep(self.closing_s)
        self.unloaded.append((bundle, url))

    async def lookup(self, name: TopicName = TOPIC, *, authoritative: bool = False) -> Any:
        return await self.ownership.lookup(name, authoritative=authoritative)

    def kill(self) -> None:
        """End the broker as by SIGKILL: connections are refused, and the session times out."""
        self.cluster.network.refuses.add(self.me.broker_url)
        self.cluster.network.refuses.add(self.me.web_url)
        self.metadata.disconnect()
        self.scope.cancel()

    def writes_below(self, path: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Return the list of paths that this host tries to write from now on, successfully or not."""
        found: list[str] = []
        multi, put = self.metadata.multi, self.metadata.put

        async def noted_multi(ops: Sequence[Op]) -> list[str]:
            found.extend(op.path for op in ops if op.path.startswith(path))
            return await multi(ops)

        async def noted_put(where: str, value: bytes, version: int) -> int:
            found.extend([where] if where.startswith(path) else [])
            return await put(where, value, version)

        monkeypatch.setattr(self.metadata, "multi", noted_multi)
        monkeypatch.setattr(self.metadata, "put", noted_put)
        return found

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        with self.scope:
            await self.ownership.run(task_status=task_status)


class FakeBrokers:
    """A network on which each broker answers a CONNECT, and a LOOKUP by its ownership."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.hosts: dict[str, Host] = {}
        self.refuses: set[str] = set()
        self.hangs: set[str] = set()
        self.connections = 0
        self.wanted: tuple[str, bytes] | None = None
        """Method and data without which a broker refuses CONNECT; it must come alone."""
        self.nursery = nursery

    async def listen(self, host: str, port: int, options: SocketOptions = DEFAULT_OPTIONS) -> Any:
        raise AssertionError(f"brokers of this network are only connected to; one listens on {host}:{port}")

    async def connect(self, host: str, port: int) -> Stream:
        await trio.sleep(0.001)
        self.connections += 1
        url = f"{'pulsar' if port == 6650 else 'http'}://{host}:{port}"
        if url in self.refuses or url not in self.hosts:
            raise ConnectionRefusedError(111, "refused")
        return _Stream(self, self.hosts[url], url)


class _Stream:
    peer_certificate: bytes | None = None

    def __init__(self, network: FakeBrokers, host: Host, url: str) -> None:
        self.peer = url
        self._network = network
        self._host = host
        self._received = bytearray()
        self._answers = bytearray()
        self._arrived = trio.Event()

    def send_nowait(self, parts: Sequence[Buffer]) -> int:
        data = b"".join(parts)
        if self.peer.startswith("http"):
            self._host.requests.append(data)
            self._answer(b"HTTP/1.1 204 No Content\r\n\r\n")
            return len(data)
        self._received += data
        while len(self._received) >= 8 and len(self._received) >= 4 + int.from_bytes(self._received[:4], "big"):
            size = 4 + int.from_bytes(self._received[:4], "big")
            command = pb.BaseCommand.FromString(bytes(self._received[8:size]))
            del self._received[:size]
            if command.type == pb.BaseCommand.CONNECT:
                wanted, connect = self._network.wanted, command.connect
                if wanted is None or (not self._received and wanted == (connect.auth_method_name, connect.auth_data)):
                    self._answer(replies.connected("test", 20, BrokerOptions()))
                else:
                    self._answer(replies.error(replies.U64_MAX, pb.AuthenticationError, "Failed to authenticate"))
                    self._received.clear()
            else:
                self._network.nursery.start_soon(self._lookup, command.lookupTopic)
        return len(data)

    async def _lookup(self, asked: pb.CommandLookupTopic) -> None:
        name = TopicName.parse(asked.topic)
        try:
            found = await self._host.ownership.lookup(name, authoritative=asked.authoritative)
        except BrokerError as error:
            self._answer(replies.lookup_failed(asked.request_id, error.code, str(error)))
            return
        if isinstance(found, Connect):
            self._answer(replies.lookup(asked.request_id, found))
        else:
            self._answer(replies.redirect(asked.request_id, found, authoritative=found.authoritative))

    def _answer(self, data: bytes) -> None:
        if self.peer not in self._network.hangs:
            self._answers += data
            self._arrived.set()

    async def receive_into(self, buffer: memoryview, at_least: int = 1) -> int:
        while not self._answers:
            self._arrived = trio.Event()
            await self._arrived.wait()
        size = min(len(buffer), len(self._answers))
        buffer[:size] = self._answers[:size]
        del self._answers[:size]
        return size

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """Do nothing: no reader remains."""


class Cluster:
    """Brokers of a test; `tree` is the metadata service, `store` a client of it that is not a broker."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.tree = MemoryTree()
        self.store = MemoryStore(self.tree)
        self.nursery = nursery
        self.network = FakeBrokers(nursery)

    async def initialize(self) -> None:
        self.nursery.start_soon(self.tree.run)
        await self.store.create("/admin/policies/public", b"{}", make_parents=True)
        await self.store.create("/admin/policies/public/default", b"{}")

    def add(self, name: str, **options: Any) -> Host:
        """Return a broker that does not run yet."""
        host = Host(self, name, replace(OPTIONS, **options))
        self.network.hosts[host.me.broker_url] = host
        self.network.hosts[host.me.web_url] = host
        return host

    async def start(self, name: str, **options: Any) -> Host:
        host = self.add(name, **options)
        await self.nursery.start(host.run)
        return host

    def start_soon(self, host: Host) -> trio.Event:
        """Start a broker; return an event that is set when it is registered."""
        registered = trio.Event()

        async def start() -> None:
            await self.nursery.start(host.run)
            registered.set()

        self.nursery.start_soon(start)
        return registered

    async def start_many(self, *names: str, **options: Any) -> list[Host]:
        """Start brokers in order, so that the first is the leader; on return each has found the others."""
        first = await self.start(names[0], **options)
        await until(lambda: first.ownership.brokers.is_leader)
        hosts = [first, *[await self.start(name, **options) for name in names[1:]]]
        await until(lambda: all(len(host.ownership.brokers.reports) == len(names) for host in hosts))
        return hosts

    async def owner(self, bundle: Bundle) -> bytes | None:
        node = await self.store.get(bundle.path)
        return None if node is None else node.value


@asynccontextmanager
async def in_cluster() -> AsyncIterator[Cluster]:
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery)
        await cluster.initialize()
        yield cluster
        nursery.cancel_scope.cancel()


def counters(name: TopicName, **counts: int) -> TopicCounters:
    values = {"messages_in": 0, "bytes_in": 0, "messages_out": 0, "producers": 0, "consumers": 0, **counts}
    return TopicCounters(name, **values)

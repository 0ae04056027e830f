"""Ownership on a real ZooKeeper: sessions that end, connections that are cut, brokers that were killed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio

from broker import replies
from broker.config import BrokerOptions
from broker.ownership.bundles import Bundle, even
from broker.ownership.lookup import Connect
from broker.ownership.ownership import LocalBroker, Ownership, OwnershipOptions
from quire.metadata.zookeeper.store import SessionExpiredPolicy, ZooKeeperConfig, ZooKeeperStore
from quire.wire.pulsar.names import NamespaceName, TopicName
from quire.world.real import real_world
from tests.support.proxy import Proxy, proxy
from tests.support.zookeeper import expire, opened, own_root, shared_server, until

pytestmark = pytest.mark.cluster

SESSION_S = 2.0
NAMESPACE = NamespaceName("public", "default")
TOPIC = TopicName.parse("persistent://public/default/orders")
BUNDLE = even(NAMESPACE, 4).find(TOPIC)


class Member:
    """The part of a broker that is visible to others: a port that answers CONNECT, a session, an ownership."""

    def __init__(self, store: ZooKeeperStore, link: Proxy, port: int) -> None:
        self.store = store
        self.link = link
        self.scope = trio.CancelScope()
        self.me = LocalBroker(
            id=f"127.0.0.1:{port + 1}", broker_url=f"pulsar://127.0.0.1:{port}", web_url=f"http://127.0.0.1:{port + 1}"
        )
        self.ownership = Ownership(real_world(), store, self.me, OwnershipOptions(cluster_name="test"))
        self.lost: list[Bundle] = []
        self.ownership.on_lost = self.lost.append

    async def owns(self) -> bool:
        return self.ownership.owns(TOPIC)

    async def lookup(self, *, authoritative: bool = False) -> Any:
        return await self.ownership.lookup(TOPIC, authoritative=authoritative)

    def kill(self) -> None:
        """Kill the broker: it answers nothing any more, and its session is not closed."""
        self.link.cut(refuse=True)
        self.scope.cancel()

    async def run(self, listeners: list[trio.SocketListener], task_status: trio.TaskStatus[None]) -> None:
        with self.scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.serve_listeners, _answer, listeners)
                await nursery.start(self.ownership.run)
                task_status.started()


async def _answer(stream: trio.SocketStream) -> None:
    try:
        while await stream.receive_some(4096):
            await stream.send_all(replies.connected("test", 20, BrokerOptions()))
    except trio.BrokenResourceError:
        pass  # whoever asked has heard enough


@asynccontextmanager
async def member(config: ZooKeeperConfig) -> AsyncIterator[Member]:
    async with proxy(shared_server().port) as link:
        through = replace(config, servers=(("127.0.0.1", link.port),))
        async with opened(through) as store, trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            made = Member(store, link, listeners[0].socket.getsockname()[1])
            await nursery.start(made.run, listeners)
            yield made
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def two() -> AsyncIterator[tuple[Member, Member, ZooKeeperStore]]:
    """Yield two brokers, and a client of ZooKeeper that is not a broker."""
    config = shared_server().config(own_root(), session_timeout_s=SESSION_S, policy=SessionExpiredPolicy.RECONNECT)
    async with opened(config) as store:
        await store.create("/admin/policies/public/default", b"{}", make_parents=True)
        async with member(config) as a, member(config) as b:

            async def acquainted() -> bool:
                return all(len(each.ownership.brokers.reports) == 2 for each in (a, b))

            await until(acquainted, "both know each other")
            yield a, b, store


@pytest.mark.real_clock
async def test_a_killed_owner_is_replaced_within_its_session_and_a_second() -> None:
    async with two() as (a, b, _):
        assert (await a.lookup(authoritative=True)).mine
        assert (await b.lookup(authoritative=True)).broker_url == a.me.broker_url
        a.kill()
        killed_at = trio.current_time()
        await trio.sleep(b.ownership.options.probe_good_s)  # what it said before is not believed any more
        assert await b.lookup() == Connect(b.me.broker_url, b.me.web_url, mine=True)
        assert trio.current_time() - killed_at < SESSION_S + 1.0


@pytest.mark.real_clock
async def test_a_session_that_ends_is_no_loss_and_the_bundle_is_held_in_the_next() -> None:
    async with two() as (a, b, store):
        assert (await a.lookup(authoritative=True)).mine
        before = a.store.session
        await expire(a.store, shared_server().port)

        async def held_anew() -> bool:
            node = await a.store.get(BUNDLE.path)
            return a.store.session != before and node is not None and node.mine

        await until(held_anew, "the bundle is held in a new session")
        assert a.lost == []
        assert await a.owns()
        await a.ownership.check(TOPIC)

        async def registered() -> bool:
            return await store.get(f"/loadbalance/brokers/{a.me.id}") is not None

        await until(registered, "it is registered again")
        assert (await b.lookup()).broker_url == a.me.broker_url


@pytest.mark.real_clock
async def test_an_owner_that_comes_back_too_late_sees_so_and_lets_go() -> None:
    async with two() as (a, b, _):
        assert (await a.lookup(authoritative=True)).mine
        a.link.cut(refuse=True)

        async def taken() -> bool:
            return bool((await b.lookup(authoritative=True)).mine)

        await until(taken, "the other has the bundle")
        assert await a.owns(), "it cannot know"
        assert a.lost == []
        a.link.refuse(False)

        async def lost() -> bool:
            return a.lost == [BUNDLE]

        await until(lost, "it has seen its loss")
        assert not await a.owns()
        assert (await a.lookup()).broker_url == b.me.broker_url


@pytest.mark.real_clock
async def test_a_bundle_is_split_and_handed_over_and_everybody_sees_it() -> None:
    async with two() as (a, b, store):
        assert (await a.lookup(authoritative=True)).mine
        assert (await b.lookup(authoritative=True)).broker_url == a.me.broker_url
        await a.ownership.split(BUNDLE)
        assert await a.owns()
        assert (await b.lookup(authoritative=True)).broker_url == a.me.broker_url
        part = a.ownership.bundle_of(TOPIC)
        assert part is not None
        assert part != BUNDLE
        assert await store.get(BUNDLE.path) is None
        await a.ownership.unload(part)
        assert (await b.lookup(authoritative=True)).mine
        await b.ownership.release_all()
        assert await store.get(part.path) is None

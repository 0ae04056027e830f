from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from quire.metadata.errors import MetadataUnavailableError, SessionExpiredError
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import Kind, Node
from tests.support.refusals import raises


@pytest.fixture
async def owner(tree: MemoryTree) -> MemoryStore:
    """A session with a timeout of 30 s, and a node that goes with it."""
    owner = MemoryStore(tree, session_timeout_s=30.0)
    await owner.create("/lease", kind=Kind.EPHEMERAL)
    return owner


@pytest.fixture
async def other(tree: MemoryTree) -> MemoryStore:
    return MemoryStore(tree)


async def test_sessions_share_the_nodes_and_know_their_own(tree: MemoryTree) -> None:
    one, two = MemoryStore(tree), MemoryStore(tree)
    await one.create("/a", kind=Kind.EPHEMERAL)
    assert await one.get("/a") == Node(b"", 0, ephemeral=True, mine=True)
    assert await two.get("/a") == Node(b"", 0, ephemeral=True, mine=False)
    await two.put("/a", b"x", 0)
    assert await one.get("/a") == Node(b"x", 1, ephemeral=True, mine=True)
    await one.aclose()
    assert await two.get("/a") is None


async def test_a_lost_session_expires_after_its_timeout_and_watches_hear_of_it(tree, owner, other, nursery):
    watch = other.watch("/lease")
    nursery.start_soon(tree.run, name="tree")
    await trio.sleep(5)
    owner.disconnect()
    await watch.next()
    assert trio.current_time() == 35.0
    assert await other.get("/lease") is None


async def test_without_the_task_a_lost_session_expires_when_the_tree_is_used(owner: MemoryStore, other: MemoryStore):
    owner.disconnect()
    await trio.sleep(29.9)
    assert await other.get("/lease") is not None
    await trio.sleep(0.2)
    assert await other.get("/lease") is None


async def test_who_reconnects_in_time_keeps_the_session(owner: MemoryStore) -> None:
    owner.disconnect()
    await raises(MetadataUnavailableError, owner.get("/lease"))
    await trio.sleep(29)
    owner.reconnect()
    await trio.sleep(100)
    assert await owner.get("/lease") == Node(b"", 0, ephemeral=True, mine=True)
    assert not owner.expired.is_set()


async def test_who_reconnects_too_late_learns_only_then_that_the_session_expired(tree: MemoryTree, owner: MemoryStore):
    owner.disconnect()
    await trio.sleep(31)
    tree.expire_due()
    assert not owner.expired.is_set()
    await raises(MetadataUnavailableError, owner.get("/lease"))
    owner.reconnect()
    assert owner.expired.is_set()
    await raises(SessionExpiredError, owner.get("/lease"))
    await raises(SessionExpiredError, owner.watch("/lease").next())


async def test_an_expired_session_is_told_at_once_while_it_is_connected(tree, owner, other):
    watch = owner.watch("/lease")
    tree.expire(owner.session)
    tree.expire(owner.session)
    assert owner.expired.is_set()
    assert not other.expired.is_set()
    assert await other.get("/lease") is None
    await raises(SessionExpiredError, watch.next())
    await raises(SessionExpiredError, owner.create("/lease", kind=Kind.EPHEMERAL))


async def test_a_store_that_is_closed_without_a_connection_leaves_its_nodes_for_the_timeout(tree: MemoryTree) -> None:
    owner, other = MemoryStore(tree, session_timeout_s=10.0), MemoryStore(tree)
    await owner.create("/lease", kind=Kind.EPHEMERAL)
    owner.disconnect()
    await owner.aclose()
    assert await other.get("/lease") is not None
    await trio.sleep(10)
    assert await other.get("/lease") is None


async def test_watches_are_silent_without_a_connection_and_speak_when_it_is_back(tree: MemoryTree) -> None:
    follower, other = MemoryStore(tree), MemoryStore(tree)
    watch = follower.watch("/a")
    heard: list[float] = []

    async def follow() -> None:
        await watch.next()
        heard.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow, name="follow")
        await wait_all_tasks_blocked()
        follower.disconnect()
        await other.create("/a")
        await trio.sleep(7)
        assert heard == []
        assert follower.watch("/b") is not watch
        follower.reconnect()
    assert heard == [7.0]


async def test_latency_is_paid_on_the_way_there_and_back(tree: MemoryTree) -> None:
    store = MemoryStore(tree, latency=lambda: 0.5)
    await store.create("/a")
    assert trio.current_time() == 1.0
    assert await store.get("/a") == Node(b"", 0)
    assert trio.current_time() == 2.0


@pytest.mark.parametrize(
    ("after_s", "left"),
    [pytest.param(1.5, Node(b"x", 0), id="on the way back"), pytest.param(0.5, None, id="on the way there")],
)
async def test_a_connection_that_is_lost_leaves_its_writer_unsure_whether_the_write_is_done(tree, other, after_s, left):
    store = MemoryStore(tree, latency=lambda: 1.0)

    async def cut() -> None:
        await trio.sleep(after_s)
        store.disconnect()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cut, name="cut")
        await raises(MetadataUnavailableError, store.create("/a", b"x"))
    assert await other.get("/a") == left

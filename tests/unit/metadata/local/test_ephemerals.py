from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from quire.metadata.errors import NodeExistsError, SessionExpiredError
from quire.metadata.local import ephemerals
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import Kind, Node


def mine(value: bytes, version: int = 0) -> Node:
    return Node(value, version, ephemeral=True, mine=True)


async def test_ones_own_node_is_taken_again_with_a_new_value(tree: MemoryTree, store: MemoryStore) -> None:
    for value, version in ((b"a", 0), (b"a", 0), (b"b", 1)):
        await ephemerals.take(store, "/x/me", value)
        assert await store.get("/x/me") == mine(value, version)


async def test_anothers_node_is_waited_for_but_not_for_ever(tree: MemoryTree, store: MemoryStore) -> None:
    other = MemoryStore(tree, session_timeout_s=5)
    await other.create("/me", b"other", kind=Kind.EPHEMERAL)
    started = trio.current_time()
    with pytest.raises(NodeExistsError, match="another session"):
        await ephemerals.take(store, "/me", b"a", wait_s=3)
    assert trio.current_time() == started + 3
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tree.run, name="expiry")
        other.disconnect()
        await ephemerals.take(store, "/me", b"a", wait_s=7)
        assert trio.current_time() == started + 8
        nursery.cancel_scope.cancel()
    assert await store.get("/me") == mine(b"a")


async def test_the_time_in_which_the_service_does_not_answer_is_none_of_waiting_for_another(
    tree: MemoryTree, store: MemoryStore, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node may be that of our own session, which ended in that time."""
    other, create = MemoryStore(tree), store.create
    await other.create("/me", b"a", kind=Kind.EPHEMERAL)

    async def slow(path: str, value: bytes, *, kind: Kind, make_parents: bool) -> str:
        monkeypatch.undo()
        await trio.sleep(5)
        nursery.start_soon(gone)
        return await create(path, value, kind=kind, make_parents=make_parents)

    async def gone() -> None:
        await trio.sleep(1)
        await other.delete("/me")

    monkeypatch.setattr(store, "create", slow)
    await ephemerals.take(store, "/me", b"a", wait_s=2)
    assert await store.get("/me") == mine(b"a")


async def test_a_node_that_goes_while_it_is_looked_at_is_taken(tree, store: MemoryStore, monkeypatch) -> None:
    other, get = MemoryStore(tree), store.get
    await other.create("/me", b"other", kind=Kind.EPHEMERAL)

    async def late(path: str) -> Node | None:
        monkeypatch.undo()
        await other.delete(path)
        return await get(path)

    monkeypatch.setattr(store, "get", late)
    await ephemerals.take(store, "/me", b"a")
    assert await store.get("/me") == mine(b"a")


async def test_only_ones_own_node_is_given_up(tree: MemoryTree, store: MemoryStore) -> None:
    other = MemoryStore(tree)
    await ephemerals.take(store, "/me", b"a")
    await ephemerals.drop(other, "/me")
    assert await store.get("/me") == mine(b"a")
    await ephemerals.drop(store, "/me")
    await ephemerals.drop(store, "/me")
    assert await store.get("/me") is None


async def test_a_kept_node_is_made_anew_when_it_goes_and_when_the_connection_was_away(tree, store, nursery):
    other = MemoryStore(tree)
    await nursery.start(ephemerals.keep, store, "/me", b"a")
    await other.delete("/me")
    await wait_all_tasks_blocked()
    assert await store.get("/me") == mine(b"a")
    store.disconnect()
    await other.delete("/me")
    await trio.sleep(10)
    store.reconnect()
    await wait_all_tasks_blocked()
    assert await store.get("/me") == mine(b"a")


async def test_keeping_ends_with_a_store_that_has_no_session_any_more(tree: MemoryTree, store: MemoryStore) -> None:
    with pytest.RaisesGroup(SessionExpiredError):
        async with trio.open_nursery() as nursery:
            await nursery.start(ephemerals.keep, store, "/me", b"a")
            tree.expire(store.session)

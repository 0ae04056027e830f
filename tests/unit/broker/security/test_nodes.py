"""broker.security.authorization.nodes: what is followed, and for how long."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from broker.errors import ServiceNotReadyError
from broker.security.authorization import nodes
from broker.security.authorization.grants import read_admins
from broker.security.authorization.nodes import Followed, Nodes
from quire.metadata.errors import MetadataUnavailableError
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.service.log import Event
from tests.support.waiting import until
from tests.unit.broker.security.roles import store

PATH = "/admin/policies/acme"


class User:
    """Something that depends on a node."""


class Rig:
    """Nodes of tenants over a store in memory."""

    def __init__(self) -> None:
        self.store = MemoryStore(MemoryTree())
        self.changed: list[str] = []
        self.reads = 0
        self.nodes: Nodes[frozenset[str]] = Nodes(self.store, read_admins, self._note)

    def _note(self, node: Followed[frozenset[str]]) -> None:
        self.changed.append(node.path)

    async def put(self, *roles: str, path: str = PATH) -> None:
        await store(self.store, path, {"adminRoles": list(roles)})


@asynccontextmanager
async def running() -> AsyncIterator[Rig]:
    rig = Rig()
    async with trio.open_nursery() as nursery:
        await nursery.start(rig.nodes.run)
        yield rig
        nursery.cancel_scope.cancel()


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with running() as rig:
        yield rig


async def test_a_node_that_was_used_is_known_and_kept_up_to_date(rig: Rig) -> None:
    await rig.put("a")
    assert rig.nodes.known(PATH) is None
    assert (await rig.nodes.get(PATH)).value == frozenset("a")
    await rig.put("a", "b")
    found = rig.nodes.known(PATH)
    assert found is not None
    await until(lambda: found.value == frozenset("ab"))
    assert rig.changed == [PATH]


async def test_a_missing_node_is_followed_until_it_is_there(rig: Rig) -> None:
    found = await rig.nodes.get(PATH)
    assert found.value == frozenset()
    await rig.put("a")
    await until(lambda: found.value == frozenset("a"))
    await rig.store.delete(PATH)
    await until(lambda: found.value == frozenset())


async def test_what_was_just_stored_is_used_without_its_watch(rig: Rig) -> None:
    found = await rig.nodes.get(PATH)
    await rig.put("a")
    await rig.nodes.reread(PATH)
    assert found.value == frozenset("a")
    await rig.nodes.reread("/admin/policies/unknown")
    assert rig.nodes.known("/admin/policies/unknown") is None


async def test_an_unknown_node_is_not_ready_while_the_store_is_away_and_a_known_one_holds(rig: Rig) -> None:
    await rig.put("a")
    await rig.nodes.get(PATH)
    rig.store.disconnect()
    with pytest.raises(ServiceNotReadyError):
        await rig.nodes.get("/admin/policies/other")
    assert (await rig.nodes.get(PATH)).value == frozenset("a")


async def test_a_node_that_cannot_be_read_is_not_ready_and_no_empty_one(rig: Rig) -> None:
    await rig.store.create(PATH, b"{", make_parents=True)
    with pytest.raises(ServiceNotReadyError):
        await rig.nodes.get(PATH)
    await rig.put("a")
    found = await rig.nodes.get(PATH)
    await store(rig.store, PATH, {"adminRoles": "a"})
    await trio.sleep(1)
    assert found.value == frozenset("a"), "the last valid value holds"
    assert rig.changed == []


async def test_a_node_that_becomes_unreadable_is_in_the_log(rig: Rig, log_events: list[Event]) -> None:
    await rig.put("a")
    await rig.nodes.get(PATH)
    await store(rig.store, PATH, {"adminRoles": "a"})
    await until(lambda: any(each["event"] == "permissions not read, the last ones hold" for each in log_events))


async def test_the_oldest_node_that_no_connection_depends_on_goes_first(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "FOLLOWED_MAX", 3)
    user = User()
    (await rig.nodes.get("/a/0")).users.add(user)
    for number in range(1, 6):
        await rig.nodes.get(f"/a/{number}")
    assert rig.nodes.count == 3
    assert rig.nodes.known("/a/0") is not None
    assert rig.nodes.known("/a/1") is None
    del user
    for number in range(6, 9):
        await rig.nodes.get(f"/a/{number}")
    assert rig.nodes.known("/a/0") is None


async def test_nodes_that_connections_depend_on_are_kept_beyond_the_bound(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "FOLLOWED_MAX", 2)
    users = [User() for _ in range(5)]
    for number, user in enumerate(users):
        (await rig.nodes.get(f"/a/{number}")).users.add(user)
    assert all(rig.nodes.known(f"/a/{number}") for number in range(5))


async def test_a_node_that_is_no_longer_followed_has_no_task(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "FOLLOWED_MAX", 1)
    await rig.nodes.get("/a/0")
    await rig.nodes.get("/a/1")
    nursery = rig.nodes._tasks.nursery
    assert nursery is not None
    await until(lambda: len(nursery.child_tasks) == 1)


async def test_before_it_runs_every_call_reads() -> None:
    rig = Rig()
    await rig.put("a")
    assert (await rig.nodes.get(PATH)).value == frozenset("a")
    await rig.put("b")
    assert (await rig.nodes.get(PATH)).value == frozenset("b")
    assert rig.nodes.known(PATH) is None


async def test_calls_at_the_same_time_share_a_read_and_its_failure(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, fails, read = [0], [True], rig.nodes._read

    async def slow(path: str) -> frozenset[str]:
        reads[0] += 1
        await trio.sleep(30)
        if fails[0]:
            raise MetadataUnavailableError("away")
        return await read(path)

    async def call(get: Callable[[str], Awaitable[object]], refused: list[bool]) -> None:
        try:
            await get(PATH)
            refused.append(False)
        except ServiceNotReadyError:
            refused.append(True)

    async def calls(get: Callable[[str], Awaitable[object]]) -> tuple[list[bool], float]:
        refused: list[bool] = []
        begun = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(call, get, refused)
        return refused, trio.current_time() - begun

    monkeypatch.setattr(rig.nodes, "_read", slow)
    assert await calls(rig.nodes.get) == ([True] * 10, 30)
    assert reads == [1]
    fails[0] = False
    refused, _ = await calls(rig.nodes.get)
    assert refused == [False] * 10
    await trio.sleep(40)  # its watch looks once more
    before, fails[0] = reads[0], True
    refused, took = await calls(rig.nodes.newer)
    assert (refused, reads[0] - before) == ([True] * 10, 1)
    assert took <= 31
    fails[0] = False
    refused, _ = await calls(rig.nodes.newer)
    assert refused == [False] * 10


async def test_what_is_newer_was_read_after_the_call_and_not_too_often(rig: Rig) -> None:
    await rig.put("a")
    found = await rig.nodes.get(PATH)
    found.scope.cancel()  # its watch is slow
    begun = trio.current_time()
    for role in "bcdef":
        await rig.put(role)
        assert (await rig.nodes.newer(PATH)).value == frozenset(role)
    assert trio.current_time() - begun >= 4 * nodes.PAUSE_S

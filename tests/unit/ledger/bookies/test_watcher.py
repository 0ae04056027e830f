from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from quire.ledger.bookies.watcher import LOCATE_RETRY_S, LOOK_UP_S, StoredBookies, WatcherConfig, watched_links
from quire.metadata import bookies
from quire.metadata.bookies import BookieServiceInfo, Endpoint
from quire.metadata.clusters import init_new_cluster
from quire.metadata.errors import MetadataUnavailableError, NoNodeError, NotAllowedError
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import ANY_VERSION, Kind
from quire.wire.bookkeeper import v2
from quire.world.doors import World
from tests.support.refusals import raises

A, B, C = "a:3181", "b:3181", "c:3181"


def at(host: str, port: int = 3181) -> BookieServiceInfo:
    return BookieServiceInfo(endpoints=(Endpoint(host=host, port=port),))


def members(watcher: StoredBookies) -> tuple[list[str], list[str]]:
    """Return the ids of (writable, read-only) bookies."""
    cluster = watcher.cluster()
    return list(cluster.writable), sorted(cluster.read_only)


class Faults:
    """FaultCounts with values that the test sets."""

    def __init__(self) -> None:
        self.errors: dict[str, int] = {}

    def take_errors(self) -> dict[str, int]:
        errors, self.errors = self.errors, {}
        return errors


class Scene:
    """A cluster's metadata, a session of its bookies and one of a client, which a watcher uses."""

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.theirs = MemoryStore(self.tree)
        self.ours = MemoryStore(self.tree)
        self.faults = Faults()

    async def register(self, bookie_id: str, host: str | None = None, *, read_only: bool = False) -> None:
        await bookies.register(self.theirs, bookie_id, at(host or bookie_id.split(":")[0]), read_only=read_only)

    async def set_racks(self, value: bytes) -> None:
        if await self.theirs.get("/bookies") is None:
            await self.theirs.create("/bookies")
        await self.theirs.put("/bookies", value, ANY_VERSION)

    @asynccontextmanager
    async def watcher(self, seed: int = 0, **config: Any) -> AsyncIterator[StoredBookies]:
        watcher = StoredBookies(self.ours, random.Random(seed), WatcherConfig(**config), self.faults)
        async with trio.open_nursery() as nursery:
            await nursery.start(watcher.run)
            yield watcher
            nursery.cancel_scope.cancel()


@pytest.fixture
async def scene() -> Scene:
    scene = Scene()
    await init_new_cluster(scene.theirs, "/ledgers", rng=random.Random(1))
    return scene


async def test_it_knows_the_writable_and_the_read_only_when_it_has_started_and_from_then_on(scene: Scene) -> None:
    await scene.register(B)
    await scene.register(C, read_only=True)
    async with scene.watcher() as watcher:
        assert members(watcher) == ([B], [C])
        changed = watcher.changed
        await scene.register(A)
        await changed.wait()
        assert watcher.cluster().writable == (A, B)
        await scene.register(A, read_only=True)
        await wait_all_tasks_blocked()
        assert members(watcher) == ([B], [A, C])
        await bookies.unregister(scene.theirs, B)
        await scene.register(C)
        await wait_all_tasks_blocked()
        assert members(watcher) == ([C], [A])


async def test_who_is_listed_as_both_takes_nothing_new(scene: Scene) -> None:
    await scene.register(A)
    await scene.theirs.create(bookies.registration_path(A, read_only=True), kind=Kind.EPHEMERAL)
    async with scene.watcher() as watcher:
        assert members(watcher) == ([], [A])


async def test_the_cluster_is_the_same_object_until_something_changes(scene: Scene) -> None:
    async with scene.watcher() as watcher:
        before, changed = watcher.cluster(), watcher.changed
        await scene.set_racks(b"{}")
        await wait_all_tasks_blocked()
        assert watcher.cluster() is before
        assert not changed.is_set()
        watcher.set_weights({A: 5})
        assert watcher.cluster() is not before
        assert watcher.cluster().weights == {A: 5}
        assert changed.is_set()


@pytest.mark.real_clock
async def test_a_cluster_that_was_never_initialised_is_said_to_be_none() -> None:
    watcher = StoredBookies(MemoryStore(MemoryTree()), random.Random(0))
    async with trio.open_nursery() as nursery:
        await raises(NoNodeError, nursery.start(watcher.run))


async def test_racks_are_read_and_followed_by_id_address_and_host(scene: Scene) -> None:
    await scene.register("one", "h1")
    await scene.register("two", "h2")
    async with scene.watcher() as watcher:
        assert watcher.cluster().locations == {}
        racks = {"default": {"one": {"rack": "/r1"}, "h2:3181": {"rack": "eu/r2"}, "gone:1": {"rack": "/r3"}}}
        await scene.set_racks(json.dumps(racks).encode())
        await wait_all_tasks_blocked()
        known = {each: watcher.cluster().locations.get(each) for each in ("one", "two", "gone:1")}
        assert known == {"one": "/r1", "two": "/eu/r2", "gone:1": "/r3"}
        await scene.theirs.delete("/bookies")
        await wait_all_tasks_blocked()
        assert watcher.cluster().locations == {}


async def test_a_damaged_rack_map_leaves_the_racks_as_they_were(scene: Scene) -> None:
    await scene.register(A)
    await scene.set_racks(b'{"g": {"a:3181": {"rack": "/r1"}}}')
    async with scene.watcher() as watcher:
        await scene.set_racks(b"{")
        await wait_all_tasks_blocked()
        assert watcher.cluster().locations == {A: "/r1"}


async def test_a_bookie_is_reached_where_it_is_registered_now(scene: Scene) -> None:
    await scene.register("my-bookie", "h1")
    await scene.register("reader", "h9", read_only=True)
    async with scene.watcher() as watcher:
        assert await watcher.resolve("my-bookie") == ("h1", 3181)
        assert await watcher.resolve("reader") == ("h9", 3181)
        await scene.register("my-bookie", "h2")
        assert await watcher.resolve("my-bookie") == ("h2", 3181)


async def test_an_old_bookie_that_registers_nothing_is_reached_by_its_id(scene: Scene) -> None:
    await scene.theirs.create(bookies.registration_path("h7:77"), b"", kind=Kind.EPHEMERAL)
    async with scene.watcher() as watcher:
        assert watcher.cluster().writable == ("h7:77",)
        assert await watcher.resolve("h7:77") == ("h7", 77)


async def test_a_bookie_that_has_left_is_reached_where_it_was_or_by_its_id_or_not_at_all(scene: Scene) -> None:
    await scene.register("my-bookie", "h1")
    async with scene.watcher() as watcher:
        await bookies.unregister(scene.theirs, "my-bookie")
        await wait_all_tasks_blocked()
        assert await watcher.resolve("my-bookie") == ("h1", 3181)
        assert await watcher.resolve("never:5") == ("never", 5)
        await raises(OSError, watcher.resolve("never"), "not host:port")


@pytest.mark.parametrize("data", [b"\xff", b""])
async def test_a_bookie_whose_registration_says_nothing_is_listed_all_the_same(data: bytes, scene: Scene) -> None:
    await scene.theirs.create(bookies.registration_path("odd"), data, kind=Kind.EPHEMERAL)
    await scene.register(A)
    async with scene.watcher() as watcher:
        assert watcher.cluster().writable == (A, "odd")
        await raises(OSError, watcher.resolve("odd"), "odd")


async def test_while_the_service_is_away_what_was_known_holds_and_then_what_is_true(scene: Scene) -> None:
    await scene.register("my-bookie", "h1")
    async with scene.watcher() as watcher:
        scene.ours.disconnect()
        await scene.register(B)
        await wait_all_tasks_blocked()
        assert watcher.cluster().writable == ("my-bookie",)
        assert await watcher.resolve("my-bookie") == ("h1", 3181)
        scene.ours.reconnect()
        await wait_all_tasks_blocked()
        assert watcher.cluster().writable == (B, "my-bookie")


async def test_a_read_that_the_service_breaks_off_is_done_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene.watcher() as watcher:
        failures = 2
        children = scene.ours.children

        async def breaks_off(path: str) -> list[str]:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise MetadataUnavailableError("no answer in time")
            return await children(path)

        monkeypatch.setattr(scene.ours, "children", breaks_off)
        await scene.register(A)
        with trio.fail_after(60):
            while watcher.cluster().writable != (A,):
                await watcher.changed.wait()
        assert failures < 0


async def test_what_the_service_refuses_is_told_and_tried_with_the_next_change(log_events, scene, monkeypatch):
    async with scene.watcher() as watcher:

        async def refuse(path: str) -> list[str]:
            raise NotAllowedError("rights were taken")

        with monkeypatch.context() as patch:
            patch.setattr(scene.ours, "children", refuse)
            await scene.register(A)
            await trio.sleep(100)
        assert watcher.cluster().writable == ()
        told = [(each["level"], each["path"]) for each in log_events if "cannot be read" in each["event"]]
        assert told == [("warning", "/ledgers/available")]
        await scene.register(B)
        await wait_all_tasks_blocked()
        assert watcher.cluster().writable == (A, B)


async def test_when_the_session_has_gone_it_ends_and_what_was_known_stays(scene: Scene) -> None:
    await scene.register(A)
    watcher = StoredBookies(scene.ours, random.Random(0), WatcherConfig(health_check=True), scene.faults)
    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            await nursery.start(watcher.run)
            scene.tree.expire(scene.ours.session)
    assert watcher.cluster().writable == (A,)
    assert await watcher.resolve(A) == ("a", 3181)


async def test_a_service_that_does_not_answer_keeps_nobody_from_a_bookie_that_is_known(scene, monkeypatch):
    await scene.register("my-bookie", "h1")
    async with scene.watcher() as watcher:

        async def never(path: str) -> Any:
            await trio.sleep_forever()

        monkeypatch.setattr(scene.ours, "get", never)
        before = trio.current_time()
        assert await watcher.resolve("my-bookie") == ("h1", 3181)
        assert trio.current_time() - before == LOOK_UP_S


async def test_a_bookie_in_quarantine_is_back_after_its_time_and_stays_writable_meanwhile(scene: Scene) -> None:
    await scene.register(A)
    async with scene.watcher(quarantine_s=50.0) as watcher:
        changed = watcher.changed
        watcher.quarantine(A)
        assert changed.is_set()
        assert members(watcher) == ([A], [])
        assert watcher.cluster().quarantined == {A}
        await trio.sleep(49.9)
        assert watcher.cluster().quarantined == {A}
        await trio.sleep(0.2)
        assert watcher.cluster().quarantined == frozenset()


async def test_a_bookie_with_too_many_errors_in_an_interval_goes_into_quarantine(scene: Scene) -> None:
    async with scene.watcher(health_check=True, health_check_interval_s=60.0, health_check_errors=5) as watcher:
        scene.faults.errors = {A: 5, B: 4}
        await trio.sleep(59)
        assert watcher.cluster().quarantined == frozenset()
        await trio.sleep(2)
        assert watcher.cluster().quarantined == {A}
        scene.faults.errors = {B: 4}
        await trio.sleep(60)
        assert watcher.cluster().quarantined == {A}


async def test_without_the_health_check_or_where_an_operator_disabled_it_nobody_goes_into_quarantine(scene: Scene):
    await scene.theirs.create("/ledgers/disableHealthCheck")
    async with scene.watcher(health_check=True) as watcher:
        scene.faults.errors = {A: 1000}
        await trio.sleep(61)
        assert watcher.cluster().quarantined == frozenset()
        assert scene.faults.errors == {}, "errors of a time without the check do not count later"
        await scene.theirs.delete("/ledgers/disableHealthCheck")
        scene.faults.errors = {A: 1000}
        await trio.sleep(60)
        assert watcher.cluster().quarantined == {A}
    async with scene.watcher() as watcher:
        scene.faults.errors = {A: 1000}
        await trio.sleep(200)
        assert watcher.cluster().quarantined == frozenset()


async def test_only_some_clients_leave_a_bookie_at_once_by_the_ratio(scene: Scene) -> None:
    left = 0
    for seed in range(100):
        async with scene.watcher(seed, health_check=True, quarantine_ratio=0.3) as watcher:
            scene.faults.errors = {A: 100}
            await trio.sleep(61)
            left += A in watcher.cluster().quarantined
    assert 20 <= left <= 40


@pytest.mark.seeded(3)
async def test_links_go_to_where_the_watcher_says(world: World, nursery: trio.Nursery) -> None:
    listener = await world.network.listen("127.0.0.1", 0)
    store = MemoryStore(MemoryTree())
    await init_new_cluster(store, "/ledgers", rng=random.Random(1))
    await bookies.register(store, "my-bookie", at(*listener.address))
    watcher = StoredBookies(store, world.rng)
    await nursery.start(watcher.run)
    link = watched_links(world.network, nursery, watcher)("my-bookie")
    link.set_receiver(lambda chunk: None)
    request = v2.read_request(7, 0)
    link.send([request])
    with trio.fail_after(60):
        stream = await listener.accept()
        buffer = bytearray(4096)
        size = await stream.receive_into(memoryview(buffer))
    assert size > 0
    link.close()


class Locations:
    """Answers of a source of locations, and the hosts that it was asked for."""

    def __init__(self, **racks: str) -> None:
        self.racks = racks
        self.asked: list[tuple[str, ...]] = []

    async def locate(self, hosts: Sequence[str]) -> Mapping[str, str]:
        self.asked.append(tuple(hosts))
        await trio.sleep(1)
        return {host: self.racks[host] for host in hosts if host in self.racks}


async def test_locations_are_asked_for_by_host_before_a_bookie_takes_entries(scene: Scene) -> None:
    source = Locations(h1="/r1", h2="/zone/domain")
    await scene.register("b1", "h1")
    await scene.set_racks(b'{"g": {"b1": {"rack": "/other"}}}')
    async with scene.watcher(locate=source.locate) as watcher:
        assert watcher.cluster().locations == {"b1": "/r1"}
        changed = watcher.changed
        await scene.register("b2", "h2")
        await scene.register("h9:3181")
        await trio.sleep(0.5)
        assert set(watcher.cluster().writable) == {"b1"}
        await changed.wait()
        await trio.sleep(3)
        assert set(watcher.cluster().writable) == {"b1", "b2", "h9:3181"}
        assert watcher.cluster().locations == {"b1": "/r1", "b2": "/zone/domain"}


async def test_a_host_without_a_location_is_asked_for_again(scene: Scene) -> None:
    source = Locations()
    await scene.register("b1", "h1")
    async with scene.watcher(locate=source.locate) as watcher:
        assert watcher.cluster().writable == ("b1",)
        assert watcher.cluster().locations == {}
        source.racks = {"h1": "/r1"}
        await trio.sleep(LOCATE_RETRY_S + 2)
        assert watcher.cluster().locations == {"b1": "/r1"}
        await trio.sleep(LOCATE_RETRY_S * 3)
        assert source.asked == [("h1",)] * 2

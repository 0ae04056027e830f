"""quire.metadata.local.rocksdb with little memory, over visible and reading: nodes are forgotten and read again."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Iterator
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from quire.metadata import paths
from quire.metadata.errors import MalformedMetadataError, MetadataError, NoNodeError, NotEmptyError
from quire.metadata.local import planning, reading, visible
from quire.metadata.local.rocksdb import KeyValueStore, open_store
from quire.metadata.local.rows import row_key
from quire.metadata.local.tree import Tree, plan
from quire.metadata.local.visible import UNKNOWN, VisibleNodes
from quire.metadata.store import ANY_VERSION, Create, Delete, Kind, Node, Op, Put
from quire.world.doors import World
from simulation.machines.world import Universe, run
from tests.support.effort import effort
from tests.support.refusals import raises
from tests.unit.metadata.local.by_hand import ByHand

OPS = 60
NAMES = ["/a", "/b", "/a/x", "/a/y", "/a/x/z", "/b/x", "/b/y"]


class Forgetful(VisibleNodes):
    """As little memory as is possible."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(half_bytes=0)


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.metadata.local.rocksdb.VisibleNodes", Forgetful)
    monkeypatch.setattr(visible, "LISTED_MAX", 2)
    monkeypatch.setattr(reading, "LISTED_MAX", 2)


# ------------------------------------------------------------------------------------------------------- as in one tree


def random_op(rng: Random) -> Op:
    path, version = rng.choice(NAMES), rng.choice((ANY_VERSION, ANY_VERSION, 0, 1))
    match rng.randrange(5):
        case 0 | 1:
            kind = rng.choice((Kind.PERSISTENT, Kind.PERSISTENT, Kind.EPHEMERAL))
            return Create(path=path, value=b"%d" % rng.randrange(9), kind=kind, make_parents=rng.random() < 0.5)
        case 2:
            return Put(path=path, value=b"%d" % rng.randrange(9), version=version)
        case _:
            return Delete(path=path, version=version)


async def compare_with_a_tree(universe: Universe) -> None:
    rng, tree = Random(universe.rng.getrandbits(32)), Tree()

    async def main(world: World, stop: trio.Event) -> None:
        store = await open_store(world, "/data/metadata")
        for _ in range(OPS):
            ops = [random_op(rng) for _ in range(rng.choice((1, 1, 2, 3)))]
            expected: Any = None
            try:
                planned = plan(tree, ops, 1)
                tree.apply(planned.effects)
            except MetadataError as error:
                expected = type(error), error.index
            try:
                await store.multi(ops)
                found: Any = None
            except MetadataError as error:
                found = type(error), error.index
            assert found == expected, ops
            for path in ["/", *NAMES]:
                node = tree.nodes.get(path)
                seen = await store.get(path)
                assert (None if seen is None else (seen.value, seen.version)) == (node and (node.value, node.version))
                if node is not None:
                    assert await store.children(path) == tree.children(path)
        await store.aclose()

    host = universe.host("host")
    host.start(main)
    await host.wait_down()


def test_a_store_that_forgets_whatever_it_may_answers_as_a_tree_in_memory() -> None:
    for seed in range(effort(quick=12, full=40)):
        run(seed, compare_with_a_tree)


def test_it_does_so_when_each_op_is_planned_in_a_step_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "OPS_IN_STEP", 1)
    for seed in range(effort(quick=3, full=10)):
        run(seed, compare_with_a_tree)


async def writers_beside_readers(universe: Universe) -> None:
    """Many tasks create and delete their nodes below one parent, while others read it: what was answered is seen."""

    async def main(world: World, stop: trio.Event) -> None:
        store = await open_store(world, "/data/metadata")
        await store.create("/p")
        mine: dict[str, bool] = {}

        async def write(name: str) -> None:
            rng = Random(f"{universe.rng.random()} {name}")
            for number in range(8):
                await store.create(f"/p/{name}", b"%d" % number)
                assert await store.get(f"/p/{name}") == Node(b"%d" % number, 0)
                assert name in await store.children("/p")
                await raises(NotEmptyError, store.delete("/p"))
                await trio.sleep(rng.random() * 0.01)
                await store.delete(f"/p/{name}")
                assert await store.get(f"/p/{name}") is None
                assert name not in await store.children("/p")
            mine[name] = True

        async with trio.open_nursery() as nursery:
            for name in "abcdef":
                nursery.start_soon(write, name, name=name)
        assert len(mine) == 6
        assert await store.children("/p") == []
        await store.delete("/p")
        await raises(NoNodeError, store.children("/p"))
        await store.aclose()

    host = universe.host("host")
    host.start(main)
    await host.wait_down()


def test_what_was_answered_is_seen_beside_writes_of_others() -> None:
    for seed in range(effort(quick=12, full=40)):
        run(seed, writers_beside_readers)


# --------------------------------------------------------------------------------------------------- what is unsettled


@pytest.fixture
async def hand() -> ByHand:
    return ByHand()


@pytest.fixture
async def store(hand: ByHand) -> AsyncIterator[KeyValueStore]:
    store = await open_store(hand.world(), "/data")
    yield store
    hand.failure = None
    await store.aclose()


async def forget(store: KeyValueStore) -> None:
    """Read so many other nodes that nothing settled is left in memory."""
    for number in range(4):
        assert await store.get(f"/other-{number}") is None


async def test_a_row_that_is_on_the_disk_and_not_reported_yet_is_not_seen(hand, store, nursery) -> None:
    nursery.start_soon(store.create, "/a", b"1")
    await wait_all_tasks_blocked()
    hand.step()
    nursery.start_soon(store.put, "/a", b"2", 0)
    nursery.start_soon(store.create, "/b")
    await wait_all_tasks_blocked()
    written = hand.work()
    assert hand.rows[row_key("/a")].endswith(b"2")
    await forget(store)
    assert await store.get("/a") == Node(b"1", 0)
    assert await store.get("/b") is None
    assert await store.children("/") == ["a"]
    hand.report(written)
    await forget(store)
    assert await store.get("/a") == Node(b"2", 1)
    assert await store.children("/") == ["a", "b"]


async def test_a_row_of_a_write_that_failed_is_not_seen(hand, store, nursery) -> None:
    nursery.start_soon(store.create, "/a", b"1")
    await wait_all_tasks_blocked()
    hand.step()
    hand.failure, hand.applies_what_fails = OSError(errno.ENOSPC, "full"), True
    for call in (store.put("/a", b"2", 0), store.create("/b")):
        async with trio.open_nursery() as failing:
            failing.start_soon(raises_metadata_error, call)
            await wait_all_tasks_blocked()
            hand.step()
    hand.failure = None
    await forget(store)
    assert await store.get("/a") == Node(b"1", 0)
    assert await store.get("/b") is None
    assert await store.children("/") == ["a"]


async def raises_metadata_error(call: Any) -> None:
    await raises(MetadataError, call)


async def test_a_damaged_row_fails_what_needs_it_and_nothing_else(hand, store, nursery) -> None:
    for path in ("/a", "/b"):
        nursery.start_soon(store.create, path, b"1")
        await wait_all_tasks_blocked()
        hand.step()
    hand.rows[row_key("/a")] = b"short"
    await forget(store)
    await raises(MalformedMetadataError, store.get("/a"), "cut off")
    await raises(MalformedMetadataError, store.put("/a", b"2", 0))
    assert await store.get("/b") == Node(b"1", 0)
    assert not store.expired.is_set()


class Counting:
    """Counts the rows that are read."""

    def __init__(self, hand: ByHand) -> None:
        self.rows = 0
        self._hand = hand
        self._get, self._scan = hand.get, hand.scan
        vars(hand).update(get=self.get, scan=self.scan)

    def get(self, key: bytes) -> bytes | None:
        self.rows += 1
        return self._get(key)

    def scan(self, start: bytes, stop: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        for row in self._scan(start, stop, reverse=reverse):
            self.rows += 1
            yield row


async def test_a_folder_of_thousands_is_not_read_to_find_that_it_is_not_empty(hand, store) -> None:
    for number in range(5000):
        hand.rows[row_key(f"/f/{number:04}")] = bytes(17)
    hand.rows[row_key("/f")] = bytes(17)
    counting = Counting(hand)
    await raises(NotEmptyError, store.delete("/f"))
    assert counting.rows < 30


# ------------------------------------------------------------------------------------------------------------ deduction


def test_below_a_node_that_is_missing_or_whose_children_are_known_nothing_is_read() -> None:
    known = VisibleNodes()
    assert known.find("/a/b") is UNKNOWN
    known.learn("/a", None)
    assert known.find("/a/b") is None
    known.learn("/c", Tree().nodes[paths.ROOT])
    known.learn_names("/c", ["x"])
    assert (known.find("/c/y"), known.find("/c/x")) == (None, UNKNOWN)


@pytest.mark.seeded(3)
async def test_opening_a_store_reads_no_node(world: World) -> None:
    store = await open_store(world, "/data/metadata")
    await store.multi([Create(path=f"/n{number}") for number in range(50)])
    await store.aclose()
    store = await open_store(world, "/data/metadata")
    assert store._visible.find("/n7") is UNKNOWN
    assert await store.get("/n7") == Node(b"", 0)
    await store.aclose()

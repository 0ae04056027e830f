"""The walk over all nodes of a store: its order, its parts, and folders of very many nodes."""

from __future__ import annotations

import sys
from typing import Any

import trio

from quire.metadata.errors import NoNodeError
from quire.metadata.store import Node
from quire.metadata.walking import RESTORING, some_nodes, walk_key
from tests.unit.broker.counted_steps import CALLS_MAX, Steps


class FakeStore:
    """A store of nodes by path; those of `ephemeral` belong to sessions."""

    def __init__(self, *paths: str, ephemeral: tuple[str, ...] = ()) -> None:
        self.children_of: dict[str, list[str]] = {"/": []}
        self.ephemeral = ephemeral
        for path in sorted(paths):
            folder, _, name = path.rpartition("/")
            self.children_of[folder or "/"].append(name)
            self.children_of[path] = []

    async def get(self, path: str) -> Node | None:
        await trio.lowlevel.checkpoint()
        return Node(b"v", 0, ephemeral=path in self.ephemeral) if path in self.children_of else None

    async def children(self, path: str) -> list[str]:
        await trio.lowlevel.checkpoint()
        if path not in self.children_of:
            raise NoNodeError(path)
        return self.children_of[path][::-1]


async def all_nodes(store: Any, nodes_max: int, after: str = "") -> list[str]:
    found: list[str] = []
    more = True
    while more:
        some, more = await some_nodes(store, after, nodes_max=nodes_max, bytes_max=1 << 20)
        found += [path for path, _ in some]
        after = found[-1] if found else after
    return found


PATHS = (
    *("/ledgers", "/ledgers/idgen", "/ledgers/idgen-long", "/ledgers/00", "/ledgers/00/1", "/ledgers/zz"),
    *("/managed-ledgers", "/managed-ledgers/t", "/managed-ledgers/t/a", "/managed-ledgers/t-1", "/managed-ledgers/t/b"),
    *("/admin", "/admin/a", "/loadbalance", "/loadbalance/b", RESTORING, "/zookeeper", "/zookeeper/quota"),
)


async def test_parts_of_any_size_from_any_place_on_have_each_node_once_and_in_order() -> None:
    store = FakeStore(*PATHS, ephemeral=("/loadbalance/b",))
    left_out = {RESTORING, "/zookeeper", "/zookeeper/quota", "/loadbalance/b"}
    wanted = sorted(set(PATHS) - left_out, key=walk_key)
    assert wanted[-1] == "/ledgers/idgen-long"
    for nodes_max in (1, 2, 3, 100):
        assert await all_nodes(store, nodes_max) == wanted
    for after in (*wanted, "/ledgers/deleted", "/managed-ledgers/t/0/deleted", "/nothing"):
        assert await all_nodes(store, 2, after) == [each for each in wanted if walk_key(each) > walk_key(after)], after


async def test_a_folder_of_20000_nodes_holds_no_step() -> None:
    store: Any = FakeStore("/t", *(f"/t/{number:05d}" for number in range(20_000)))
    steps = Steps(trio.lowlevel.current_task(), real=False)
    found: list[Any] = []

    async def read() -> None:
        found.append(await some_nodes(store, "/t/10000", nodes_max=100, bytes_max=1 << 20))

    trio.lowlevel.add_instrument(steps)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
    trio.lowlevel.remove_instrument(steps)
    sys.setprofile(None)
    assert found[0][0][0][0] == "/t/10001"
    assert 0 < steps.longest <= CALLS_MAX, f"{steps.longest:.0f} calls in one step"

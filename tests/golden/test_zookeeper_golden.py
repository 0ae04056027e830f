"""Trees of Apache BookKeeper 4.17.3 in a real ZooKeeper: Quire's managers read them, and the trees that these managers
write are the same, node by node: names, bytes, versions, ephemeral or not.

How the data was made: tests/golden/bookkeeper/zk/README.md.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from quire.metadata import bookies, clusters, ledger_codec, paths
from quire.metadata.cookies import decode_cookie
from quire.metadata.layouts import SHORT_ID_LIMIT, decode_layout, is_ledger_node
from quire.metadata.ledgers import LedgerManager, LedgerState, SequenceLedgerIds, read_instance_id, read_layout
from quire.metadata.store import Kind, MetadataStore
from quire.metadata.zookeeper.store import ZooKeeperStore, open_store
from quire.world.real import real_world
from tests.support.zookeeper import own_root, shared_server

pytestmark = pytest.mark.real_clock

GOLDEN = Path(__file__).parent / "bookkeeper/zk"
ROOTS = {"flat": "/flat/ledgers", "long": "/longh/ledgers", "versions": "/direct2/ledgers"}
NAMES = ["running", "readonly", "flat", "long", "versions", "pulsar-stopped"]


class GoldenNode(NamedTuple):
    value: bytes
    version: int
    ephemeral: bool


class Numbers:
    """A source of randomness with given numbers."""

    def __init__(self) -> None:
        self.next = 0

    def getrandbits(self, k: int, /) -> int:
        return self.next


class ChosenId:
    """Ledger ids that the creator chooses."""

    def __init__(self, ledger_id: int) -> None:
        self._ledger_id = ledger_id

    async def next_id(self) -> int:
        await trio.lowlevel.checkpoint()
        return self._ledger_id


def tree_of(name: str) -> dict[str, GoldenNode]:
    """Return the nodes below the ledgers' root of a tree, sorted by path."""
    nodes = json.loads((GOLDEN / f"{name}.json").read_text())
    return {
        path: GoldenNode(base64.b64decode(node["data"]), node["version"], node["ephemeral"])
        for path, node in sorted(nodes.items())
        if path == root_of(name) or path.startswith(f"{root_of(name)}/")
    }


def root_of(name: str) -> str:
    return ROOTS.get(name, "/pulsar/ledgers" if name.startswith("pulsar") else "/db/ledgers")


async def dump(store: MetadataStore, root: str) -> dict[str, GoldenNode]:
    found: dict[str, GoldenNode] = {}
    todo = [root]
    while todo:
        path = todo.pop()
        node = await store.get(path)
        assert node is not None, path
        found[path] = GoldenNode(node.value, node.version, node.ephemeral)
        todo += [paths.join(path, name) for name in await store.children(path)]
    return dict(sorted(found.items()))


def ledger_id_of(root: str, path: str) -> int | None:
    """Return the ledger whose metadata is at a path."""
    parts = path.removeprefix(f"{root}/").split("/")
    if not is_ledger_node(parts[0]) or not parts[-1].startswith("L"):
        return None
    return int("".join(parts).replace("L", ""))


@pytest.fixture
async def store() -> AsyncIterator[ZooKeeperStore]:
    store = await open_store(real_world(1), shared_server().config(own_root()))
    yield store
    await store.aclose()


@pytest.mark.parametrize("name", [*NAMES, "autorecovery", "underreplicated", "disabled", "pulsar-running"])
async def test_a_loaded_tree_is_read(name: str, store: ZooKeeperStore) -> None:
    root, tree = root_of(name), tree_of(name)
    for path, node in tree.items():
        kind = Kind.EPHEMERAL if node.ephemeral else Kind.PERSISTENT
        await store.create(path, node.value, kind=kind, make_parents=True)
    assert (await read_instance_id(store, root)).encode() == tree[f"{root}/INSTANCEID"].value
    layout = await read_layout(store, root)
    manager = LedgerManager(store, ids=ChosenId(0), rng=Numbers(), root=root, layout=layout)
    found = [ledger_id async for ledger_id in manager.ledger_ids()]
    wanted = [ledger_id for path in tree if (ledger_id := ledger_id_of(root, path)) is not None]
    assert found == sorted(wanted)
    assert len(found) > 0
    for ledger_id in found:
        metadata = await manager.read(ledger_id)
        assert metadata is not None
        assert ledger_codec.decode(tree[manager.path(ledger_id)].value) == metadata.value
    for bookie_id in [*await bookies.available(store, root=root), *await bookies.readonly(store, root=root)]:
        info = await bookies.service_info(store, bookie_id, root=root)
        assert info is not None
        cookie = await bookies.read_cookie(store, bookie_id, root=root)
        assert cookie is not None
        assert cookie.value.bookie_id == bookie_id


# (Not pulsar-running: Pulsar's own ledger manager makes ledgers without the token by which a creator knows its own.)
@pytest.mark.parametrize("name", NAMES)
async def test_a_tree_that_we_write_is_the_originals_node_by_node(name: str, store: ZooKeeperStore) -> None:
    root, tree = root_of(name), tree_of(name)
    layout = decode_layout(root, tree[f"{root}/LAYOUT"].value)
    await store.create(paths.parent(root), make_parents=True)
    instance_id = tree[f"{root}/INSTANCEID"].value.decode()
    await store.multi(clusters.plan_new_cluster(root, instance_id, layout))
    for path, node in tree.items():
        if paths.parent(path) == f"{root}/cookies":
            await bookies.write_cookie(store, decode_cookie(node.value), None, root=root)
    rng, sequence = Numbers(), SequenceLedgerIds(store, root, layout=layout)
    ledgers = [(ledger_id, node) for path, node in tree.items() if (ledger_id := ledger_id_of(root, path)) is not None]
    for ledger_id, node in sorted(ledgers):
        metadata, rng.next = ledger_codec.decode_with_token(node.value)
        first = metadata
        if node.version:
            first = replace(metadata, state=LedgerState.OPEN, last_entry_id=-1, length=0)
        chosen = ledger_id >= SHORT_ID_LIMIT or (name == "long" and ledger_id > 1000)
        while True:
            ids = ChosenId(ledger_id) if chosen else sequence
            manager = LedgerManager(store, ids=ids, rng=rng, root=root, layout=layout)
            made, version = await manager.create(first)
            if made == ledger_id:
                break
            assert made < ledger_id
            assert layout.name != "flat", "a number was skipped"
            await store.delete(manager.path(made))  # a ledger that the original has deleted meanwhile
        while version < node.version:
            version = await manager.write(ledger_id, metadata, version)
    for path, node in tree.items():
        if node.ephemeral:
            info = bookies.decode_service_info(paths.name(path), node.value)
            read_only = paths.parent(path).endswith("/readonly")
            await bookies.register(store, paths.name(path), info, read_only=read_only, root=root)
    written = await dump(store, root)
    assert list(written) == list(tree)
    assert written == tree


async def test_what_we_format_is_what_metaformat_leaves(store: ZooKeeperStore) -> None:
    root = "/db/ledgers"
    formatted = tree_of("formatted")
    for path, node in tree_of("autorecovery").items():
        if not node.ephemeral:
            await store.create(path, node.value, make_parents=True)
    instance_id = await clusters.format_cluster(store, root, rng=Numbers())
    written = await dump(store, root)
    # What the auditor of that cluster wrote between the two dumps.
    between = {path for path in formatted if path.endswith(("ctime", "RecoveryDelay"))}
    assert set(written) | between == set(formatted)
    assert written[f"{root}/INSTANCEID"] == GoldenNode(instance_id.encode(), 0, False)
    same = set(written) - between - {f"{root}/INSTANCEID"}
    values = {path: written[path].value for path in same}
    assert values == {path: formatted[path].value for path in same}


async def test_a_sequence_that_is_used_up_goes_on_in_buckets(store: ZooKeeperStore) -> None:
    """The server's own counter cannot be set, so the test creates the node that marks the first sequence as used up."""
    await store.create("/ledgers/idgen-long", make_parents=True)
    ids = SequenceLedgerIds(store)
    assert [await ids.next_id() for _ in range(3)] == [1 << 32, (1 << 32) + 1, (1 << 32) + 2]
    await store.create("/ledgers/idgen-long/HOB-0000000007")
    assert await SequenceLedgerIds(store).next_id() == 7 << 32
    await store.delete("/ledgers/idgen-long/HOB-0000000001")
    assert await ids.next_id() == (7 << 32) + 1
    assert await store.children("/ledgers/idgen-long") == ["HOB-0000000007"]

"""`quire initialize-cluster-metadata` makes the same nodes as Pulsar's command, byte by byte, except for the random id
of the bookie cluster.

How the data was made: tests/golden/pulsar/README.md.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from quire.metadata import paths
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.servers.initialize_cluster import NewCluster, initialize
from quire.world.real import real_world

GOLDEN = Path(__file__).parent / "pulsar/zk-initialized.json"
CHROOT = "/pulsar"
INSTANCE = "/ledgers/INSTANCEID"
CLUSTER = NewCluster(
    name="golden",
    web_url="http://127.0.0.1:8280",
    broker_url="pulsar://127.0.0.1:6850",
    servers="127.0.0.1:2281",
    chroot=CHROOT,
    own_address="127.0.0.1",
)


async def tree(store: MemoryStore, path: str = "/") -> dict[str, tuple[bytes, int, bool]]:
    node = await store.get(path)
    assert node is not None
    found = {path: (node.value, node.version, node.ephemeral)}
    for name in await store.children(path):
        found |= await tree(store, paths.join(path, name))
    return found


@pytest.mark.real_clock
async def test_a_new_cluster_is_pulsars_node_by_node() -> None:
    golden = {
        path.removeprefix(CHROOT) or "/": (base64.b64decode(node["data"]), node["version"], node["ephemeral"])
        for path, node in json.loads(GOLDEN.read_text()).items()
    }
    store = MemoryStore(MemoryTree())
    await initialize(store, CLUSTER, real_world(1).rng)
    made = await tree(store)
    assert len(made.pop(INSTANCE)[0]) == len(golden.pop(INSTANCE)[0])
    assert made == golden

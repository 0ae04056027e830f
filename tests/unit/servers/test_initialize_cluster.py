"""quire.servers.initialize_cluster: the metadata of a new cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quire.metadata.errors import MetadataUnavailableError
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.zookeeper import store
from quire.metadata.zookeeper.config import Tls, ZooKeeperConfig, parse_connect_string
from quire.servers.initialize_cluster import NewCluster, initialize, nodes, run_initialize, servers_of
from quire.service.errors import ConfigError
from quire.world.real import real_world

pytestmark = pytest.mark.real_clock

CLUSTER = NewCluster(name="one", web_url="http://one:8080", servers="z:2181", chroot="/q")


async def fields(store: MemoryStore, path: str) -> dict[str, object]:
    node = await store.get(path)
    assert node is not None, path
    found: dict[str, object] = json.loads(node.value)
    return found


async def test_it_is_made_once_and_what_is_there_stays() -> None:
    store, rng = MemoryStore(MemoryTree()), real_world(1).rng
    assert await initialize(store, CLUSTER, rng) == len(nodes(CLUSTER, "x"))
    instance = await store.get("/ledgers/INSTANCEID")
    await store.put("/admin/policies/public/default", b'{"replication_clusters":["one"],"kept":1}', -1)
    assert await initialize(store, CLUSTER, rng) == 0
    assert await store.get("/ledgers/INSTANCEID") == instance
    assert (await fields(store, "/admin/policies/public/default"))["kept"] == 1


async def test_a_second_cluster_joins_tenants_and_namespaces() -> None:
    store, rng = MemoryStore(MemoryTree()), real_world(1).rng
    await initialize(store, CLUSTER, rng)
    assert await initialize(store, replace(CLUSTER, name="two", coordinators=20), rng) == 1
    assert await store.children("/admin/clusters") == ["one", "two"]
    assert (await fields(store, "/admin/policies/pulsar"))["allowedClusters"] == ["one", "two"]
    assert (await fields(store, "/admin/policies/pulsar/system"))["replication_clusters"] == ["one", "two"]
    coordinators = "/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign"
    assert (await fields(store, coordinators))["partitions"] == 20


async def test_bookies_that_are_there_are_taken_as_they_are() -> None:
    store = MemoryStore(MemoryTree())
    await store.create("/ledgers/INSTANCEID", b"mine", make_parents=True)
    await initialize(store, CLUSTER, real_world(1).rng)
    node = await store.get("/ledgers/INSTANCEID")
    assert node is not None
    assert node.value == b"mine"
    assert await store.get("/ledgers/available") is None


def test_options_change_what_is_made() -> None:
    made = nodes(
        replace(CLUSTER, storage_containers=0, existing_bookies=True, bundles=4, web_url_tls="https://one"), "x"
    )
    assert not [path for path in made if path.startswith(("/stream", "/ledgers"))]
    assert json.loads(made["/admin/policies/public/default"])["bundles"]["numBundles"] == 4
    assert json.loads(made["/admin/clusters/one"])["serviceUrlTls"] == "https://one"
    assert nodes(replace(CLUSTER, storage_containers=300), "x")["/stream/metadata"] == b"\x08\xac\x02"


@pytest.mark.parametrize(
    "wrong", [{"name": "a/b"}, {"name": ""}, {"coordinators": 0}, {"storage_containers": -1}, {"bundles": 0}]
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        replace(CLUSTER, **wrong)


def test_servers_are_written_with_their_ports() -> None:
    assert servers_of(parse_connect_string("zk:a,[::1]:2182/x")) == "a:2181,[::1]:2182"


class AwayStore:
    """A store that cannot be reached."""

    def __init__(self) -> None:
        self.asked: list[ZooKeeperConfig] = []

    async def open(self, world: object, config: ZooKeeperConfig) -> None:
        self.asked.append(config)
        raise MetadataUnavailableError("it is away")


def test_the_connection_to_zookeeper_has_the_keys_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    away = AwayStore()
    asked = away.asked
    monkeypatch.setattr(store, "open_store", away.open)
    conf = tmp_path / "zookeeper.conf"
    conf.write_text(
        "zkEnableSecurity=true\nquireZooKeeperAuth=digest:user:password\nquireZooKeeperTls=true\n"
        "quireZooKeeperTlsCaFile=/ca.pem\n"
    )

    def run(path: Path | None) -> int:
        return run_initialize(
            metadata_store="zk:127.0.0.1:1/chroot",
            configuration_store="",
            existing_bookies="",
            store_conf=path,
            session_timeout_ms=1000,
            cluster=lambda where: NewCluster(name="local", web_url=""),
        )

    assert run(conf) == 1
    assert (asked[0].secure, asked[0].auth, asked[0].chroot) == (True, (("digest", "user:password"),), "/chroot")
    assert asked[0].tls == Tls(ca_file="/ca.pem")
    assert run(None) == 1
    assert (asked[1].secure, asked[1].auth, asked[1].tls) == (False, (), None)
    conf.write_text("client.secure=true\n")
    capsys.readouterr()
    assert run(conf) == 2
    assert "no such key: 'client.secure'" in capsys.readouterr().err
    assert len(asked) == 2

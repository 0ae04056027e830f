"""`quire initialize-cluster-metadata`: create a cluster's metadata before its first bookie and broker start.

    /ledgers                      INSTANCEID, available/readonly; LAYOUT comes with the first server
    /bookies                      the rack map, empty
    /admin/clusters/<cluster>     where it serves
    /admin/policies/...           tenants public and pulsar; namespaces public/default and pulsar/system, of 16
                                  bundles each
    /admin/partitioned-topics/... that of transactions, which the original wants
    /stream, /pulsar/functions    places of services of the original that run beside brokers

Existing nodes are left unchanged. A second cluster on the same store is added to the tenants and namespaces.

Source: Pulsar's PulsarClusterMetadataSetup; tests/golden/pulsar/zk-initialized.json. The values of `/stream`
without content of their own are the address of the host that made them: ZooKeeper's client library puts it where
nothing is given.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from broker.ownership.bundles import even
from broker.ownership.values import default_policies, encode_json
from broker.topics.policy_values import decode
from quire.metadata.errors import BadVersionError, InvalidConnectStringError, NodeExistsError
from quire.metadata.ledgers import Random, new_instance_id
from quire.metadata.store import Create, MetadataStore, Op, Put
from quire.metadata.zookeeper.config import ConnectString, ZooKeeperConfig, parse_connect_string
from quire.servers.addresses import host_port
from quire.servers.zookeeper.keys import pulsar_store
from quire.service.errors import ConfigError
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.frames import encode_varint
from quire.wire.pulsar.names import NamespaceName

BUNDLES = 16
"""Bundles of the first two namespaces, whatever broker.conf has for others."""
COORDINATORS = 16
STORAGE_CONTAINERS = 16
TENANTS = ("public", "pulsar")
NAMESPACES = ("public/default", "pulsar/system")
COORDINATOR_TOPIC = "/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign"
_DL_HEAD = b"1\nBKDL\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCluster:
    """Arguments of the command."""

    name: str
    web_url: str
    web_url_tls: str = ""
    broker_url: str = ""
    broker_url_tls: str = ""
    coordinators: int = COORDINATORS
    storage_containers: int = STORAGE_CONTAINERS
    """0: no metadata for stream storage."""
    bundles: int = BUNDLES
    servers: str = ""
    """Servers of the metadata store, host:port, comma-separated."""
    chroot: str = "/"
    own_address: str = "127.0.0.1"
    existing_bookies: bool = False
    """True if ledgers and bookies are in another store, and not created here."""

    def __post_init__(self) -> None:
        try:
            NamespaceName.parse(f"{self.name}/x")
        except InvalidNameError as error:
            raise ConfigError(f"--cluster: {self.name!a} is not a valid cluster name") from error
        if self.coordinators < 1:
            raise ConfigError("--initial-num-transaction-coordinators: at least 1")
        if self.storage_containers < 0:
            raise ConfigError("--initial-num-stream-storage-containers: 0 or more")
        if not 1 <= self.bundles <= 1 << 16:
            raise ConfigError("--default-namespace-bundle-number: 1 to 65536")


def cluster_data(cluster: NewCluster) -> dict[str, Any]:
    """Return the value of the cluster's node, without empty fields."""
    urls = {
        "serviceUrl": cluster.web_url,
        "serviceUrlTls": cluster.web_url_tls,
        "brokerServiceUrl": cluster.broker_url,
        "brokerServiceUrlTls": cluster.broker_url_tls,
    }
    return {
        **{name: url for name, url in urls.items() if url},
        "brokerClientTlsEnabled": False,
        "tlsAllowInsecureConnection": False,
        "brokerClientTlsEnabledWithKeyStore": False,
        "brokerClientTlsTrustStoreType": "JKS",
        "brokerClientTlsKeyStoreType": "JKS",
        "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
    }


def nodes(cluster: NewCluster, instance_id: str) -> dict[str, bytes]:
    """Return every node but the chroot itself, parents first (pure)."""
    found: dict[str, bytes] = {}

    def put(path: str, value: bytes = b"") -> None:
        parts = path.split("/")[1:]
        for count in range(1, len(parts)):
            found.setdefault("/" + "/".join(parts[:count]), b"")
        found[path] = value

    if not cluster.existing_bookies:
        put("/ledgers")
        put("/ledgers/available")
        put("/ledgers/available/readonly")
        put("/ledgers/INSTANCEID", instance_id.encode())
    log_metadata = _distributed_log(cluster)
    if cluster.storage_containers:
        address = cluster.own_address.encode()
        put("/stream", address)
        put("/stream/servers", address)
        put("/stream/servers/available", address)
        put("/stream/assignment")
        put("/stream/metadata", b"\x08" + encode_varint(cluster.storage_containers))
        put("/stream/storage", log_metadata)
    put("/bookies", b"{}")
    put("/pulsar/functions", log_metadata)
    put("/pulsar/migration-coordinator/participants")
    put(f"/admin/clusters/{cluster.name}", encode_json(cluster_data(cluster)))
    for tenant in TENANTS:
        put(f"/admin/policies/{tenant}", encode_json({"allowedClusters": [cluster.name], "adminRoles": []}))
    for namespace in NAMESPACES:
        bundles = even(NamespaceName.parse(namespace), cluster.bundles)
        put(f"/admin/policies/{namespace}", encode_json(default_policies(bundles, [cluster.name])))
    put(COORDINATOR_TOPIC, encode_json({"partitions": cluster.coordinators, "deleted": False}))
    return found


def _distributed_log(cluster: NewCluster) -> bytes:
    """Return the address of the cluster for the original's log library: Thrift's JSON.

    Source: DistributedLog's BKDLConfig."""
    servers = {"str": cluster.servers}
    root = f"{cluster.chroot.rstrip('/')}/ledgers"
    fields = {
        "1": servers,
        "2": {"str": root},
        "3": {"tf": 1},
        "4": {"tf": 0},
        "5": servers,
        "6": servers,
        "7": servers,
    }
    return _DL_HEAD + json.dumps(fields, separators=(",", ":")).encode()


def _joined(path: str, value: bytes, cluster: NewCluster) -> bytes | None:
    """Return an existing node with this cluster added; None if nothing changes (pure)."""
    fields = decode(value)
    if path in [f"/admin/policies/{tenant}" for tenant in TENANTS]:
        key = "allowedClusters"
    elif path in [f"/admin/policies/{namespace}" for namespace in NAMESPACES]:
        key = "replication_clusters"
    elif path == COORDINATOR_TOPIC:
        count = fields.get("partitions")
        if isinstance(count, int) and count < cluster.coordinators:
            return encode_json({**fields, "partitions": cluster.coordinators})
        return None
    else:
        return None
    clusters = fields.get(key)
    if not isinstance(clusters, list) or cluster.name in clusters:
        return None
    return encode_json({**fields, key: [*clusters, cluster.name]})


async def initialize(store: MetadataStore, cluster: NewCluster, rng: Random) -> int:
    """Create the missing nodes, in one write; return how many, 0 if the cluster exists. Raises MetadataError."""
    while True:
        wanted = nodes(cluster, new_instance_id(rng))
        if await store.get("/ledgers") is not None:
            # An existing bookie tier is used as it is, the same as in the original.
            wanted = {path: value for path, value in wanted.items() if not f"{path}/".startswith("/ledgers/")}
        ops: list[Op] = []
        made = 0
        for path, value in wanted.items():
            node = await store.get(path)
            if node is None:
                ops.append(Create(path=path, value=value))
                made += 1
            elif (joined := _joined(path, node.value, cluster)) is not None:
                ops.append(Put(path=path, value=joined, version=node.version))
        try:
            await store.multi(ops)
            return made
        except (NodeExistsError, BadVersionError):
            continue  # another process creates the same


# --- the command


def run_initialize(
    *,
    metadata_store: str,
    configuration_store: str,
    existing_bookies: str,
    store_conf: Path | None,
    session_timeout_ms: int,
    cluster: Callable[[ConnectString], NewCluster],
) -> int:
    """Run the command; return the exit code. `store_conf`: a broker.conf with the keys of the connection to ZooKeeper.

    0: done, 1: the store cannot be reached or written, 2: the options are invalid."""
    from quire.metadata.zookeeper.store import open_store
    from quire.servers.broker.config import BROKER
    from quire.servers.process import closing, run_server
    from quire.world.real import real_world

    try:
        where = pulsar_store(
            metadata_store,
            configuration_store,
            key="--metadata-store",
            configuration_key="--configuration-metadata-store",
        )
        wanted = cluster(where)
        if existing_bookies:
            parse_connect_string(existing_bookies)
        keys = BROKER.load(store_conf).metadata
        config = ZooKeeperConfig(
            servers=where.servers,
            chroot=where.chroot,
            make_chroot=True,
            session_timeout_s=session_timeout_ms / 1000,
            secure=keys.secure,
            auth=keys.credentials,
            tls=keys.tls_settings,
        )
    except (ConfigError, InvalidConnectStringError) as error:
        print(f"quire initialize-cluster-metadata: {error}", file=sys.stderr)
        return 2
    world = real_world()

    async def main(stop: trio.Event) -> None:
        async with closing(await open_store(world, config)) as store:
            made = await initialize(store, wanted, world.rng)
        said = f"{made} nodes created" if made else "nothing to do: it exists"
        print(f"cluster {wanted.name} at {metadata_store}: {said}", flush=True)

    return run_server("initialize-cluster-metadata", main)


def own_address() -> str:
    """Return the address of this host, in the form of ZooKeeper's client library."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def servers_of(where: ConnectString) -> str:
    """Return `host:port,host:port`."""
    return ",".join(map(host_port, where.servers))

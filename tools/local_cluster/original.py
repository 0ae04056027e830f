"""Apache Pulsar's own cluster, to measure against: ZooKeeper, bookies and brokers from the jars that `bench.servers`
fetches, each a process with 512 MB of heap, fsync on. And Apache BookKeeper's auto recovery, for bookies of either
kind."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.procs import tree
from bench.servers import ADD_OPENS, listens, stop_process
from bench.waiting import poll_until
from tools.local_cluster.plan import CLUSTER_NAME, HOST, TICK_MS, conf_text
from tools.local_cluster.ports import free_ports

HEAP = ("-Xms512m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m")
BOOKIES = 3
READY_S = 120.0
_DRIVERS = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadata"


class Java:
    """One process of the original."""

    def __init__(
        self,
        name: str,
        folder: Path,
        lib: Path,
        main: str,
        *arguments: str,
        ports: tuple[int, ...] = (),
    ) -> None:
        self.name = name
        self.folder = folder
        self.ports = ports
        """Ports on which it is to listen."""
        folder.mkdir(parents=True, exist_ok=True)
        drivers = [
            f"-Dbookkeeper.metadata.{what.lower()}.drivers={_DRIVERS}{what}Driver" for what in ("Bookie", "Client")
        ]
        with open(folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                ["java", "-cp", f".:{lib}/*", *ADD_OPENS, *HEAP, *drivers, main, *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def pids(self) -> list[int]:
        return tree(self.process.pid)

    def wait_listening(self) -> None:
        """Wait until it listens on all its ports. Raises RuntimeError, with the end of its log, if it does not."""
        poll_until(lambda: self.process.poll() is not None or self._listens(), READY_S, poll_s=0.05)
        if not self._listens():
            raise RuntimeError(f"{self.name} does not serve:\n{self.tail()}")

    def _listens(self) -> bool:
        return all(map(listens, self.ports))

    def tail(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        stop_process(self.process)


class OriginalCluster:
    """One ZooKeeper, bookies, brokers; 3/3/2."""

    name = "pulsar"

    def __init__(self, folder: Path, lib: Path, *, brokers: int = 1, session_timeout_ms: int = 30_000) -> None:
        self.folder = folder
        self.lib = lib
        self._session_timeout_ms = session_timeout_ms
        self.zookeeper_port, *ports = free_ports(1 + BOOKIES + 2 * brokers)
        self._bookie_ports, ports = ports[:BOOKIES], ports[BOOKIES:]
        self._broker_ports = list(zip(ports[::2], ports[1::2], strict=True))
        self.zookeeper: Java | None = None
        self.bookies: list[Java] = []
        self.brokers: list[Java] = []

    @property
    def port(self) -> int:
        """Return the port of the first broker's clients."""
        return self._broker_ports[0][0]

    @property
    def web_url(self) -> str:
        """Return the web URL of the first broker."""
        return f"http://{HOST}:{self._broker_ports[0][1]}"

    @property
    def service_url(self) -> str:
        return "pulsar://" + ",".join(f"{HOST}:{port}" for port, _ in self._broker_ports)

    @property
    def server_pids(self) -> list[int]:
        """Return the pids of the servers, without ZooKeeper."""
        return [pid for each in (*self.bookies, *self.brokers) if each.process.poll() is None for pid in each.pids]

    @property
    def pids(self) -> list[int]:
        return [*(self.zookeeper.pids if self.zookeeper else []), *self.server_pids]

    def up(self) -> None:
        """Start the cluster. Raises RuntimeError if it does not start."""
        own = self.folder / "zookeeper"
        own.mkdir(parents=True)
        zoo = {"tickTime": TICK_MS, "dataDir": own, "clientPort": self.zookeeper_port, "clientPortAddress": HOST}
        zoo |= {"maxClientCnxns": 0, "admin.enableServer": "false"}
        (own / "zoo.cfg").write_text(conf_text(zoo))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self.zookeeper = Java("zookeeper", own, self.lib, main, "zoo.cfg", ports=(self.zookeeper_port,))
        self.zookeeper.wait_listening()
        self._initialize()
        for number, port in enumerate(self._bookie_ports):
            self.bookies.append(self._bookie(number, port))
        for bookie in self.bookies:
            bookie.wait_listening()
        for number, (port, web) in enumerate(self._broker_ports):
            self.brokers.append(self._broker(number, port, web))
        for broker in self.brokers:
            broker.wait_listening()

    @property
    def _store(self) -> str:
        return f"zk:{HOST}:{self.zookeeper_port}"

    def _initialize(self) -> None:
        port, web = self._broker_ports[0]
        setup = Java(
            "setup",
            self.folder / "setup",
            self.lib,
            "org.apache.pulsar.PulsarClusterMetadataSetup",
            *(
                "--cluster",
                CLUSTER_NAME,
                "--metadata-store",
                self._store,
                "--configuration-metadata-store",
                self._store,
            ),
            *("--web-service-url", f"http://{HOST}:{web}", "--broker-service-url", f"pulsar://{HOST}:{port}"),
        )
        if setup.process.wait(READY_S):
            raise RuntimeError(f"the metadata cannot be made:\n{setup.tail()}")

    def _bookie(self, number: int, port: int) -> Java:
        own = self.folder / f"bookie{number + 1}"
        own.mkdir()
        settings = {
            "bookiePort": port,
            "advertisedAddress": HOST,
            "allowLoopback": "true",
            "metadataServiceUri": f"metadata-store:{self._store}",
            "journalDirectories": own / "journal",
            "ledgerDirectories": own / "ledgers",
            "journalSyncData": "true",
            "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
            "diskUsageThreshold": 0.99,
            "diskUsageWarnThreshold": 0.98,
            "diskUsageLwmThreshold": 0.98,
            "httpServerEnabled": "false",
        }
        (own / "bookie.conf").write_text(conf_text(settings))
        main = "org.apache.bookkeeper.server.Main"
        return Java(f"bookie{number + 1}", own, self.lib, main, "--conf", "bookie.conf", ports=(port,))

    def _broker(self, number: int, port: int, web: int) -> Java:
        own = self.folder / f"broker{number + 1}"
        own.mkdir()
        settings = {
            "clusterName": CLUSTER_NAME,
            "metadataStoreUrl": self._store,
            "configurationMetadataStoreUrl": self._store,
            "metadataStoreSessionTimeoutMillis": self._session_timeout_ms,
            "brokerServicePort": port,
            "webServicePort": web,
            "bindAddress": HOST,
            "advertisedAddress": HOST,
            "managedLedgerDefaultEnsembleSize": 3,
            "managedLedgerDefaultWriteQuorum": 3,
            "managedLedgerDefaultAckQuorum": 2,
            "loadBalancerSheddingEnabled": "false",
        }
        (own / "broker.conf").write_text(conf_text(settings))
        main = "org.apache.pulsar.PulsarBrokerStarter"
        return Java(f"broker{number + 1}", own, self.lib, main, "--broker-conf", "broker.conf", ports=(port, web))

    def down(self) -> None:
        for each in (*self.brokers, *self.bookies, *([self.zookeeper] if self.zookeeper else [])):
            each.stop()


def auto_recovery(folder: Path, lib: Path, metadata_uri: str) -> Java:
    """Run the original's auto recovery on any cluster of bookies: `AutoRecoveryMain`."""
    folder.mkdir(parents=True)
    (port,) = free_ports(1)
    settings: dict[str, object] = {
        "bookiePort": port,
        "advertisedAddress": HOST,
        "allowLoopback": "true",
        "metadataServiceUri": metadata_uri,
        "zkTimeout": 10_000,
        "httpServerEnabled": "false",
    }
    (folder / "recovery.conf").write_text(conf_text(settings))
    main = "org.apache.bookkeeper.replication.AutoRecoveryMain"
    return Java("auto recovery", folder, lib, main, "--conf", "recovery.conf")

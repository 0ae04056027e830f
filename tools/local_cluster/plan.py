"""Plan of a local cluster: its processes and their configurations. Pure.

<folder>/zk1 .. zk3            zoo.cfg, myid, ZooKeeper's data      server.N lines if there are several
<folder>/bookie1 ..            bk_server.conf, journal, ledgers
<folder>/broker1 ..            broker.conf
<folder>/recovery1 ..          bk_server.conf of an auto recovery of its own
<folder>/security            keys, certificates, tokens, passwords   `security.Security`
<folder>/<name>/log            what the process says, standard output and standard error
<folder>/cluster.json          the state: `state.State`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import MappingProxyType

NONE: Mapping[str, object] = MappingProxyType({})
HOST = "127.0.0.1"
CLUSTER_NAME = "local"
TICK_MS = 500
SESSION_TIMEOUT_MS = 3000
LOG_LEVELS = ("", "debug", "info", "error")
"""Names that ZooKeeper has too."""


class Kind(Enum):
    """Kind of a process. The value is the beginning of its name."""

    ZOOKEEPER = "zk"
    BOOKIE = "bookie"
    BROKER = "broker"
    RECOVERY = "recovery"


COMMANDS = {
    Kind.ZOOKEEPER: ("zookeeper", "zoo.cfg"),
    Kind.BOOKIE: ("bookie", "bk_server.conf"),
    Kind.BROKER: ("broker", "broker.conf"),
    Kind.RECOVERY: ("autorecovery", "bk_server.conf"),
}
"""The command of `quire`, and the name of its configuration file."""
READY_LINES = {kind: f"ready {command}=" for kind, (command, _) in COMMANDS.items()}
PORT_COUNTS = {Kind.ZOOKEEPER: 3, Kind.BOOKIE: 1, Kind.BROKER: 2, Kind.RECOVERY: 1}
"""Ports of each: clients, peers, elections; binary, web. (That of a recovery is only its name.)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One process of the cluster, running or not."""

    name: str
    kind: Kind
    ports: tuple[int, ...]

    @property
    def port(self) -> int:
        """Return the port of its clients."""
        return self.ports[0]

    @property
    def address(self) -> str:
        """Return its public name: a bookie's id, an auto recovery's name."""
        return f"{HOST}:{self.port}"

    @property
    def number(self) -> int:
        return int(self.name.removeprefix(self.kind.value))

    def folder(self, cluster: Path) -> Path:
        return cluster / self.name

    def conf(self, cluster: Path) -> Path:
        return self.folder(cluster) / COMMANDS[self.kind][1]

    def log(self, cluster: Path) -> Path:
        return self.folder(cluster) / "log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Numbers of processes, and additional settings. Raises ValueError for an impossible cluster."""

    zookeepers: int = 1
    bookies: int = 3
    brokers: int = 1
    recoveries: int = 1
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    secure: bool = False
    """TLS, authentication and authorization everywhere, and no port without them; see `security.Security`."""
    log_level: str = ""
    """Log level of the processes: debug, info or error. Empty: what each has by default."""
    conf: Mapping[Kind, Mapping[str, object]] = field(default_factory=dict)
    """Additional keys by kind, with precedence."""

    def __post_init__(self) -> None:
        if self.log_level not in LOG_LEVELS:
            raise ValueError(f"--log-level: {', '.join(filter(None, LOG_LEVELS))}")
        if self.zookeepers not in (1, 3, 5):
            raise ValueError("--zookeepers: 1, 3 or 5")
        if self.bookies < 1:
            raise ValueError("--bookies: at least 1")
        if self.brokers < 0 or self.recoveries < 0:
            raise ValueError("--brokers, --recoveries: 0 or more")

    @property
    def counts(self) -> dict[Kind, int]:
        """Return the numbers by kind, in the order of their start."""
        return {
            Kind.ZOOKEEPER: self.zookeepers,
            Kind.BOOKIE: self.bookies,
            Kind.BROKER: self.brokers,
            Kind.RECOVERY: self.recoveries,
        }

    def nodes(self, ports: Callable[[int], list[int]]) -> list[Node]:
        """Return the processes; `ports` returns so many free ports."""
        wanted = [
            (kind, f"{kind.value}{number}") for kind, count in self.counts.items() for number in range(1, count + 1)
        ]
        free = ports(sum(PORT_COUNTS[kind] for kind, _ in wanted))
        made = []
        for kind, name in wanted:
            taken, free = free[: PORT_COUNTS[kind]], free[PORT_COUNTS[kind] :]
            made.append(Node(name=name, kind=kind, ports=tuple(taken)))
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Addresses of a cluster."""

    zookeepers: tuple[Node, ...]
    brokers: tuple[Node, ...]
    secure: bool = False
    """True if all ports have TLS."""

    @property
    def metadata_store(self) -> str:
        """Return the metadata store in the form of brokers' configuration."""
        return "zk:" + ",".join(node.address for node in self.zookeepers)

    @property
    def metadata_uri(self) -> str:
        """Return the metadata store in the form of bookies' configuration."""
        return "zk+hierarchical://" + ";".join(node.address for node in self.zookeepers) + "/ledgers"

    @property
    def service_url(self) -> str:
        """Return the service URL for clients: every broker. Empty without brokers."""
        scheme = "pulsar+ssl" if self.secure else "pulsar"
        return f"{scheme}://" + ",".join(node.address for node in self.brokers) if self.brokers else ""

    @property
    def web_urls(self) -> list[str]:
        scheme = "https" if self.secure else "http"
        return [f"{scheme}://{HOST}:{node.ports[1]}" for node in self.brokers]


def settings_of(
    node: Node, plan: Plan, addresses: Addresses, folder: Path, security: Mapping[str, object] = NONE
) -> dict[str, object]:
    """Return the keys of a process's configuration file. `folder` is the cluster's, `security` what makes the process
    secure."""
    own = node.folder(folder)
    if node.kind is Kind.ZOOKEEPER:
        made = _zookeeper(node, addresses, own)
    elif node.kind is Kind.BROKER:
        made = _broker(node, plan, addresses)
    else:
        made = {
            "bookiePort": node.port,
            "advertisedAddress": HOST,
            "metadataServiceUri": addresses.metadata_uri,
            "zkTimeout": plan.session_timeout_ms,
        }
        if node.kind is Kind.BOOKIE:
            made |= {
                "listeningInterface": "lo",
                "allowLoopback": "true",
                "journalDirectories": own / "journal",
                "ledgerDirectories": own / "ledgers",
                "journalPreAllocSizeMB": 1,
                "gcWaitTime": 60_000,
            }
        else:
            made["openLedgerRereplicationGracePeriod"] = 5000
    return made | dict(security) | dict(plan.conf.get(node.kind, {}))


def _zookeeper(node: Node, addresses: Addresses, own: Path) -> dict[str, object]:
    made: dict[str, object] = {
        "tickTime": TICK_MS,
        "initLimit": 20,
        "syncLimit": 10,
        "dataDir": own,
        "secureClientPort" if addresses.secure else "clientPort": node.port,
        "secureClientPortAddress" if addresses.secure else "clientPortAddress": HOST,
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "srvr,ruok,mntr,stat",
    }
    if len(addresses.zookeepers) > 1:
        made |= {f"server.{each.number}": f"{HOST}:{each.ports[1]}:{each.ports[2]}" for each in addresses.zookeepers}
    return made


def _broker(node: Node, plan: Plan, addresses: Addresses) -> dict[str, object]:
    copies = min(3, plan.bookies)
    return {
        "clusterName": CLUSTER_NAME,
        "metadataStoreUrl": addresses.metadata_store,
        "metadataStoreSessionTimeoutMillis": plan.session_timeout_ms,
        "bindAddress": HOST,
        "advertisedAddress": HOST,
        "brokerServicePort": node.ports[0],
        "webServicePort": node.ports[1],
        "managedLedgerDefaultEnsembleSize": copies,
        "managedLedgerDefaultWriteQuorum": copies,
        "managedLedgerDefaultAckQuorum": min(2, copies),
        "brokerShutdownTimeoutMs": 10_000,
    }


def conf_text(settings: Mapping[str, object]) -> str:
    """Return the text of a configuration file."""
    return "".join(f"{key}={value}\n" for key, value in settings.items())

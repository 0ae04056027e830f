"""What `quire bookie` is told: a bk_server.conf, the original's or ours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bookie.config import BookieConfig
from quire.service.config import conf_key, keys_of, render
from quire.service.original_conf import load_original, render_tail
from quire.service.unsupported import BOOKIE_RULES
from quire.wire.bookkeeper.v2 import FRAME_MAX

DEFAULT_METADATA_URI = "zk+hierarchical://localhost:2181/ledgers"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieServerConfig(BookieConfig):
    """A bookie's keys, and those of the process around it. Raises ValueError if they contradict each other."""

    host: str = conf_key(
        "advertisedAddress",
        "",
        doc="Host that clients connect to, and part of the bookie's name unless bookieId is given. Empty: the address of "
        "listeningInterface, else that of this host's name.",
    )
    index_directory: str = conf_key(
        "indexDirectories", "", doc="Folder of the indexes of the entry logs; one. Empty: that of the entry logs."
    )
    frame_max: int = conf_key(
        "nettyMaxFrameSizeBytes",
        FRAME_MAX,
        minimum=1024,
        maximum=FRAME_MAX,
        doc="Largest request, in bytes; a connection that announces a larger one is closed.",
    )
    read_workers: int = conf_key(
        "numReadWorkerThreads",
        8,
        minimum=0,
        doc="Threads that read from disk, between 1 and 64 of them; one serves alone while the page cache does.",
    )
    urgent_workers: int = conf_key(
        "numHighPriorityWorkerThreads",
        8,
        minimum=0,
        doc="Threads that read from disk for recoveries, which do not wait behind other readers.",
    )
    add_wait_ms: int = conf_key(
        "dbStorage_maxThrottleTimeMs",
        10_000,
        minimum=0,
        doc="How long adds wait for room in the write cache or the journal before they are refused, in milliseconds.",
    )
    long_polls_max: int = conf_key(
        "quireMaxLongPolls", 10_000, minimum=1, doc="Readers that may wait for new entries at once; more are refused."
    )
    read_only_enabled: bool = conf_key(
        "readOnlyModeEnabled", True, doc="false: the bookie cannot be made read-only over HTTP."
    )
    force_read_only: bool = conf_key(
        "forceReadOnlyBookie", False, doc="true: take no new entries, but what recoveries write back."
    )
    listening_interface: str = conf_key(
        "listeningInterface", "", doc="Network interface to listen on, such as eth0. Empty: all."
    )
    allow_loopback: bool = conf_key(
        "allowLoopback",
        False,
        doc="true: the bookie may be known by an address that only this machine can reach; else it refuses to start.",
    )
    use_host_name: bool = conf_key(
        "useHostNameAsBookieID", False, doc="true: the bookie is known by its host's name, not by its address."
    )
    use_short_host_name: bool = conf_key(
        "useShortHostName", False, doc="With useHostNameAsBookieID: the name without its domain."
    )
    allow_ephemeral_ports: bool = conf_key(
        "allowEphemeralPorts", False, doc="true: bookiePort=0 takes a free port. A new one at each start: for tests."
    )
    permitted_users: tuple[str, ...] = conf_key(
        "permittedStartupUsers", (), doc="Users of the machine who may start the bookie, with commas. Empty: everybody."
    )
    metadata_uri: str = conf_key(
        "metadataServiceUri",
        "",
        doc=f"Where the cluster's metadata is: zk+hierarchical://host:2181;host:2181/ledgers, the path being the ledgers' "
        f"root. Empty: zkServers and zkLedgersRootPath; if those are empty too, {DEFAULT_METADATA_URI}",
    )
    zk_servers: str = conf_key(
        "zkServers", "", doc="ZooKeeper servers, with commas; an older way to say it than metadataServiceUri."
    )
    zk_ledgers_root: str = conf_key("zkLedgersRootPath", "/ledgers", doc="The ledgers' root, with zkServers.")
    zk_timeout_ms: int = conf_key(
        "zkTimeout",
        10_000,
        minimum=100,
        doc="How long the bookie stays registered when ZooKeeper does not hear from it, in milliseconds.",
    )
    zk_retry_first_ms: int = conf_key(
        "zkRetryBackoffStartMs", 1000, minimum=1, doc="Time to the second attempt to connect, in milliseconds."
    )
    zk_retry_max_ms: int = conf_key(
        "zkRetryBackoffMaxMs", 10_000, minimum=1, doc="Longest time between two attempts to connect, in milliseconds."
    )
    zk_secure: bool = conf_key(
        "zkEnableSecurity", False, doc="true: nodes are made with all rights for their creator, and read for the rest."
    )
    zk_auth: str = conf_key(
        "quireZooKeeperAuth", "", doc="Who the bookie is for ZooKeeper: digest:user:password. Empty: nobody."
    )
    zk_tls: bool = conf_key(
        "quireZooKeeperTls",
        False,
        doc="true: connections to ZooKeeper are encrypted, and its servers must show a certificate for their names.",
    )
    zk_tls_ca_file: str = conf_key(
        "quireZooKeeperTlsCaFile", "", doc="PEM file of who signs those certificates. Empty: whom the system trusts."
    )
    zk_tls_certificate_file: str = conf_key(
        "quireZooKeeperTlsCertificateFile", "", doc="PEM file of our own certificate, for servers that ask for one."
    )
    zk_tls_key_file: str = conf_key("quireZooKeeperTlsKeyFile", "", doc="PEM file of its key; the two go together.")
    zk_expired_policy: str = conf_key(
        "zookeeperSessionExpiredPolicy",
        "reconnect",
        choices=("reconnect", "shutdown"),
        doc="When ZooKeeper has given the bookie up: reconnect registers it anew, shutdown ends it with exit code 3.",
    )
    auto_recovery: bool = conf_key(
        "autoRecoveryDaemonEnabled",
        False,
        doc="true: auto recovery runs in this process too, with the keys of its own in this file (docs/operating.md).",
    )
    http_enabled: bool = conf_key(
        "httpServerEnabled", False, doc="true: serve health, metrics and administration over HTTP."
    )
    http_host: str = conf_key("httpServerHost", "0.0.0.0", doc="Address of that port.")
    http_port: int = conf_key(
        "httpServerPort", 8080, minimum=0, maximum=65535, doc="That port. 0 takes a free one, with allowEphemeralPorts."
    )

    def __post_init__(self) -> None:
        for key, folders in (
            ("journalDirectories", self.journal_directory),
            ("ledgerDirectories", self.ledger_directory),
            ("indexDirectories", self.index_directory),
        ):
            if "," in folders:
                raise ValueError(
                    f"{key}={folders}: a bookie has one folder of each kind here; run one bookie per folder, with its "
                    "own bookieId and port"
                )
            if not folders.strip() and key != "indexDirectories":
                raise ValueError(f"{key}: a bookie needs a folder")
        if self.zk_auth and self.zk_auth.count(":") < 2:
            raise ValueError("quireZooKeeperAuth: not of the form digest:user:password")
        check_tls_keys(self.zk_tls, self.zk_tls_ca_file, self.zk_tls_certificate_file, self.zk_tls_key_file)
        if self.port == 0 and not self.allow_ephemeral_ports:
            raise ValueError("bookiePort=0: a free port needs allowEphemeralPorts=true")

    @property
    def metadata_service(self) -> str:
        """The URI of the metadata store, from whichever keys say it."""
        if self.metadata_uri:
            return self.metadata_uri
        if self.zk_servers:
            return f"zk+null://{self.zk_servers.replace(',', ';')}{self.zk_ledgers_root}"
        return DEFAULT_METADATA_URI


def check_tls_keys(tls: bool, ca_file: str, certificate_file: str, key_file: str) -> None:
    """ValueError if the keys about TLS to ZooKeeper contradict each other."""
    if not tls and (ca_file or certificate_file or key_file):
        raise ValueError("quireZooKeeperTls is false, and the files named beside it would not be used: set it to true")
    if bool(certificate_file) != bool(key_file):
        raise ValueError("quireZooKeeperTlsCertificateFile and quireZooKeeperTlsKeyFile go together")


def load_server_config(path: str | Path) -> BookieServerConfig:
    """Read a bk_server.conf. ConfigError with every problem, one a line. Logs the keys that have no effect, once."""
    return load_original(path, BookieServerConfig, BOOKIE_RULES)


_HEAD = """Configuration of `quire bookie`: every key with its default.
Names are BookKeeper's; a bk_server.conf written for its bookies is read as it is. What becomes of the keys that are not
here stands at the end. A name that no version of it has is an error. The first value of a key wins."""


def render_conf() -> str:
    """What conf/bk_server.conf holds."""
    return render(BookieServerConfig, head=_HEAD) + render_tail(BOOKIE_RULES, fields=keys_of(BookieServerConfig))

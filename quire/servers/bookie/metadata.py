"""Keys of a bk_server.conf that say where the cluster's metadata is, for bookies, auto recovery and the shell."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from quire.metadata.zookeeper.config import ConnectString, ZooKeeperConfig, parse_connect_string
from quire.servers.zookeeper.keys import PULSAR_PREFIX, ZooKeeperKeys
from quire.service.config import MS, conf_key
from quire.service.errors import ConfigError

DEFAULT_METADATA_URI: Final = "zk+hierarchical://localhost:2181/ledgers"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadataKeys(ZooKeeperKeys):
    """ValueError if they contradict each other."""

    metadata_uri: str = conf_key(
        "metadataServiceUri",
        "",
        doc="URI of the cluster's metadata: zk+hierarchical://host:2181;host:2181/ledgers; the path is the "
        f"ledgers' root. Empty: zkServers and zkLedgersRootPath; if those are empty too, {DEFAULT_METADATA_URI}",
    )
    zk_servers: str = conf_key(
        "zkServers",
        "",
        joined=True,
        doc="ZooKeeper servers, comma-separated; an older alternative to metadataServiceUri.",
    )
    zk_ledgers_root: str = conf_key("zkLedgersRootPath", "/ledgers", doc="Root of the ledgers; used with zkServers.")
    timeout_ms: int = conf_key(
        "zkTimeout",
        10_000,
        unit=MS,
        minimum=100,
        doc="Session timeout in ZooKeeper: time for which a silent server stays registered, in milliseconds.",
    )
    retry_first_ms: int = conf_key(
        "zkRetryBackoffStartMs", 1000, unit=MS, minimum=1, doc="Time to the second attempt to connect, in milliseconds."
    )
    retry_max_ms: int = conf_key(
        "zkRetryBackoffMaxMs",
        10_000,
        unit=MS,
        minimum=1,
        doc="Longest time between two attempts to connect, in milliseconds.",
    )

    requests_per_second: float = conf_key(
        "zkRequestRateLimit",
        0.0,
        minimum=0,
        doc="Requests to ZooKeeper in a second; more wait. 0: as many as there are.",
    )

    @property
    def metadata_service(self) -> str:
        """The URI of the metadata store, from whichever keys say it."""
        if self.metadata_uri:
            return self.metadata_uri
        if self.zk_servers:
            return f"zk+null://{self.zk_servers.replace(',', ';')}{self.zk_ledgers_root}"
        return DEFAULT_METADATA_URI

    @property
    def connect_string(self) -> ConnectString:
        """Return the parts of that URI. Raises InvalidConnectStringError."""
        uri = self.metadata_service
        plain = uri.removeprefix(PULSAR_PREFIX)
        if plain != uri and _scheme(plain) != "zk":
            plain = f"zk:{plain}"
        return parse_connect_string(plain)

    def check_scheme(self) -> None:
        """ConfigError if the metadata store is not ZooKeeper."""
        uri = self.metadata_service
        if not uri.startswith(PULSAR_PREFIX) and _scheme(uri) != "zk":
            raise ConfigError(
                f"metadataServiceUri={uri}: the metadata store is ZooKeeper: zk+hierarchical://host:2181/ledgers"
            )

    @property
    def zookeeper(self) -> ZooKeeperConfig:
        """Return the configuration with which a tool reaches it. Raises InvalidConnectStringError."""
        where = self.connect_string
        seconds = self.timeout_ms / 1000
        return ZooKeeperConfig(
            servers=where.servers,
            chroot=where.chroot,
            session_timeout_s=seconds,
            connect_timeout_s=seconds,
            secure=self.secure,
            auth=self.credentials,
            tls=self.tls_settings,
        )

    @property
    def zookeeper_of_server(self) -> ZooKeeperConfig:
        """Return the configuration of a server, which connects again for as long as it runs.

        Raises InvalidConnectStringError.
        """
        return replace(
            self.zookeeper,
            retry_first_s=self.retry_first_ms / 1000,
            retry_max_s=max(self.retry_first_ms, self.retry_max_ms) / 1000,
            session_expired_policy=self.policy,
            requests_per_second=self.requests_per_second,
        )


def _scheme(uri: str) -> str:
    return uri.partition(":")[0].partition("+")[0]

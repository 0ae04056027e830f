"""Keys of Pulsar's broker.conf that say where the metadata of brokers and bookies is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quire.metadata import paths
from quire.metadata.errors import InvalidConnectStringError
from quire.metadata.zookeeper.config import ZooKeeperConfig, parse_connect_string
from quire.servers.zookeeper.keys import PULSAR_PREFIX, ZooKeeperKeys, pulsar_store
from quire.service.config import MS_IN_S, SECONDS, conf_key
from quire.service.errors import ConfigError

DEFAULT_METADATA_URL: Final = "zk:localhost:2181"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMetadataKeys(ZooKeeperKeys):
    """ValueError if they contradict each other."""

    url: str = conf_key(
        "metadataStoreUrl",
        DEFAULT_METADATA_URL,
        doc="URL of the cluster's metadata: zk:host:2181,host:2181/chroot.",
    )
    configuration_url: str = conf_key(
        "configurationMetadataStoreUrl",
        "",
        doc="Store of tenants, namespaces and policies; must be the same as metadataStoreUrl. Empty: metadataStoreUrl.",
    )
    bookkeeper_uri: str = conf_key(
        "bookkeeperMetadataServiceUri",
        "",
        doc="URI of the bookies' metadata, as in their configuration: "
        "zk+hierarchical://host:2181;host:2181/chroot/ledgers. It must be in the same ZooKeeper below "
        "the same chroot. Empty: /ledgers there.",
    )
    session_timeout_s: float = conf_key(
        "metadataStoreSessionTimeoutMillis",
        30_000,
        unit=MS_IN_S,
        minimum=100,
        doc="Time after which ZooKeeper ends the session of a silent broker, in milliseconds; other brokers "
        "then take its bundles.",
    )
    call_timeout_s: int = conf_key(
        "metadataStoreOperationTimeoutSeconds",
        30,
        unit=SECONDS,
        minimum=1,
        doc="Maximum time of a request to ZooKeeper, including lost connections and reconnecting.",
    )

    def stores(self) -> tuple[ZooKeeperConfig, str]:
        """Return the address of the metadata store, and the bookies' root in it. Raises ConfigError."""
        try:
            where = pulsar_store(
                self.url,
                self.configuration_url,
                key="metadataStoreUrl",
                configuration_key="configurationMetadataStoreUrl",
            )
            made = ZooKeeperConfig(
                servers=where.servers,
                chroot=where.chroot,
                session_timeout_s=self.session_timeout_s,
                call_timeout_s=self.call_timeout_s,
                session_expired_policy=self.policy,
                secure=self.secure,
                auth=self.credentials,
                tls=self.tls_settings,
            )
            return made, ledgers_root(self.bookkeeper_uri, made)
        except InvalidConnectStringError as error:
            raise ConfigError(f"metadata store: {error}") from error


def ledgers_root(uri: str, store: ZooKeeperConfig) -> str:
    """Return the bookies' root below the store's chroot. Raises ConfigError if it is elsewhere.

    A topic's list of ledgers and a new ledger are stored in one write, so they must be in one store."""
    if not uri:
        return "/ledgers"
    where = parse_connect_string(uri.removeprefix(PULSAR_PREFIX))
    root = where.path if where.names_ledgers else paths.join(where.chroot, "ledgers")
    prefix = store.chroot.rstrip("/")
    if set(where.servers) != set(store.servers) or not root.startswith(f"{prefix}/"):
        raise ConfigError(
            f"bookkeeperMetadataServiceUri={uri}: bookies must be registered in the ZooKeeper of metadataStoreUrl, "
            f"below {store.chroot}; remove the key, and start the bookies with "
            f"metadataServiceUri=zk+hierarchical://...{prefix}/ledgers"
        )
    return root[len(prefix) :]

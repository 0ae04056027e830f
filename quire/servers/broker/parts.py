"""What the rooms below get of a broker's configuration."""

from __future__ import annotations

from broker.ownership.config import OwnershipOptions
from cursors.config import CursorConfig
from managed_ledger.config import ManagedLedgerConfig
from quire.ledger.bookies.watcher import WatcherConfig
from quire.ledger.context import LedgerConfig
from quire.ledger.placement import PlacementConfig
from quire.ledger.read_config import ReadConfig
from quire.metadata import paths
from quire.metadata.errors import InvalidConnectStringError
from quire.metadata.zookeeper.config import SessionExpiredPolicy, ZooKeeperConfig, parse_connect_string
from quire.servers.broker.config import BrokerConfig
from quire.servers.zookeeper.keys import PULSAR_PREFIX, credentials, pulsar_store, tls
from quire.service.config import narrow
from quire.service.errors import ConfigError
from quire.wire.bookkeeper import v2


def zookeeper_config(config: BrokerConfig) -> tuple[ZooKeeperConfig, str]:
    """How to reach the metadata store, and the bookies' root in it. ConfigError."""
    try:
        where = pulsar_store(
            config.metadata_url,
            config.configuration_metadata_url,
            key="metadataStoreUrl",
            configuration_key="configurationMetadataStoreUrl",
        )
        made = ZooKeeperConfig(
            servers=where.servers,
            chroot=where.chroot,
            session_timeout_s=config.session_timeout_ms / 1000,
            call_timeout_s=config.metadata_timeout_s,
            session_expired_policy=SessionExpiredPolicy(config.zk_expired_policy),
            secure=config.zk_secure,
            auth=credentials(config),
            tls=tls(config),
        )
        return made, ledgers_root(config.bookkeeper_metadata_uri, made)
    except InvalidConnectStringError as error:
        raise ConfigError(f"metadata store: {error}") from error


def ledgers_root(uri: str, store: ZooKeeperConfig) -> str:
    """The bookies' root below the store's chroot. ConfigError if it is not there: a topic's list of ledgers and a new
    ledger are stored in one write, so they must be in one store."""
    if not uri:
        return "/ledgers"
    where = parse_connect_string(uri.removeprefix(PULSAR_PREFIX))
    root = where.path if where.names_ledgers else paths.join(where.chroot, "ledgers")
    prefix = store.chroot.rstrip("/")
    if set(where.servers) != set(store.servers) or not root.startswith(f"{prefix}/"):
        raise ConfigError(
            f"bookkeeperMetadataServiceUri={uri}: bookies must be registered in the ZooKeeper of metadataStoreUrl, below "
            f"{store.chroot}; remove the key, and start the bookies with metadataServiceUri=zk+hierarchical://...{prefix}/ledgers"
        )
    return root[len(prefix) :]


def ledger_client_config(config: BrokerConfig) -> LedgerConfig:
    """How bookies are written to and read."""
    speculative = config.speculative_read_ms / 1000
    default = ReadConfig()
    return LedgerConfig(
        protocol="v2" if config.bookie_v2_protocol else "v3",
        add_timeout_s=config.bookie_timeout_s,
        read_timeout_s=config.bookie_timeout_s,
        explicit_lac_interval_s=config.explicit_lac_ms / 1000,
        frame_max=v2.PULSAR_FRAME_MAX,
        pending_bytes_max=None,  # maxMessagePublishBufferSizeInMB bounds all topics together
        reads=ReadConfig(
            speculative_first_s=speculative or default.speculative_first_s,
            speculative_max_s=speculative or default.speculative_max_s,
            sticky=config.sticky_reads,
            reorder=config.reorder_reads,
        ),
        placement=PlacementConfig(
            policy="rack-aware" if config.rack_aware else "random",
            min_racks_per_write_quorum=config.racks_min,
            enforce_min_racks_per_write_quorum=config.racks_enforced,
        ),
    )


def watcher_config(config: BrokerConfig) -> WatcherConfig:
    """When a bookie gets no new ledgers for a time."""
    return WatcherConfig(
        health_check=config.bookie_health_check,
        health_check_interval_s=config.bookie_health_interval_s,
        health_check_errors=config.bookie_health_errors,
        quarantine_s=config.bookie_quarantine_s,
        quarantine_ratio=config.bookie_quarantine_ratio,
    )


def ownership_options(config: BrokerConfig) -> OwnershipOptions:
    """How bundles are shared."""
    return OwnershipOptions(
        cluster_name=config.cluster_name,
        bundles_default=config.bundles_default,
        unload_timeout_s=config.bundle_unload_timeout_ms / 1000,
        load_balancing=config.load_balancing,
        auto_split=config.auto_split,
        auto_shed=config.auto_shed,
        shed_interval_s=config.shed_interval_minutes * 60.0,
        shed_grace_s=config.shed_grace_minutes * 60.0,
        shed_threshold_percent=config.shed_threshold_percent,
        report_interval_s=config.report_interval_ms / 1000,
        report_threshold_percent=config.report_threshold_percent,
        report_max_s=config.report_max_minutes * 60.0,
        bundle_topics_max=config.bundle_topics_max,
        bundle_sessions_max=config.bundle_sessions_max,
        bundle_message_rate_max=config.bundle_message_rate_max,
        bundle_bandwidth_mb_max=config.bundle_bandwidth_mb_max,
        bundles_max=config.bundles_max,
    )


def ledger_config(config: BrokerConfig) -> ManagedLedgerConfig:
    """The managed ledgers' part of the configuration."""
    return narrow(config, ManagedLedgerConfig)


def cursor_config(config: BrokerConfig) -> CursorConfig:
    """The cursors' part of the configuration."""
    return narrow(config, CursorConfig)

"""What `quire broker` is told: the keys of a broker.conf."""

from __future__ import annotations

from dataclasses import dataclass

from quire.servers.bookie.config import check_tls_keys
from quire.servers.broker.keys import BrokerKeys
from quire.service.config import conf_key

DEFAULT_METADATA_URL = "zk:localhost:2181"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(BrokerKeys):
    """The keys of a broker of a cluster. Raises ValueError if they contradict each other."""

    cluster_name: str = conf_key(
        "clusterName",
        "",
        doc="Name of the cluster, as it was given to `quire initialize-cluster-metadata`. Must be set.",
    )
    advertised_address: str = conf_key(
        "advertisedAddress",
        "",
        doc="Host by which clients and the other brokers reach this one; with webServicePort it is the broker's name. "
        "Empty: bindAddress, or this host's name if that is every address.",
    )
    shutdown_timeout_ms: int = conf_key(
        "brokerShutdownTimeoutMs",
        60_000,
        minimum=0,
        doc="How long a broker that stops may take to unload its bundles and to end its connections.",
    )

    # The cluster's metadata
    metadata_url: str = conf_key(
        "metadataStoreUrl",
        DEFAULT_METADATA_URL,
        doc="Where the cluster's metadata is: zk:host:2181,host:2181/chroot.",
    )
    configuration_metadata_url: str = conf_key(
        "configurationMetadataStoreUrl",
        "",
        doc="The store of tenants, namespaces and policies: the same as metadataStoreUrl. Empty: that.",
    )
    bookkeeper_metadata_uri: str = conf_key(
        "bookkeeperMetadataServiceUri",
        "",
        doc="Where the bookies' metadata is, as bookies name it: zk+hierarchical://host:2181;host:2181/chroot/ledgers. It "
        "must lie in the same ZooKeeper below the same chroot. Empty: /ledgers there.",
    )
    session_timeout_ms: int = conf_key(
        "metadataStoreSessionTimeoutMillis",
        30_000,
        minimum=100,
        doc="After so many milliseconds without a sign of it ZooKeeper gives a broker up, and others take its bundles.",
    )
    metadata_timeout_s: int = conf_key(
        "metadataStoreOperationTimeoutSeconds",
        30,
        minimum=1,
        doc="How long a request to ZooKeeper may take, lost connections and their repair included.",
    )
    zk_expired_policy: str = conf_key(
        "zookeeperSessionExpiredPolicy",
        "reconnect",
        choices=("reconnect", "shutdown"),
        doc="When ZooKeeper has given the broker up: reconnect registers it anew, shutdown ends it with exit code 1.",
    )
    zk_secure: bool = conf_key(
        "zkEnableSecurity", False, doc="true: nodes are made with all rights for their creator, and read for the rest."
    )
    zk_auth: str = conf_key(
        "quireZooKeeperAuth", "", doc="Who the broker is for ZooKeeper: digest:user:password. Empty: nobody."
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

    # Copies
    ensemble_size: int = conf_key(
        "managedLedgerDefaultEnsembleSize", 2, minimum=1, doc="Bookies that a new ledger is spread over."
    )
    write_quorum: int = conf_key(
        "managedLedgerDefaultWriteQuorum", 2, minimum=1, doc="Bookies that each entry is written to."
    )
    ack_quorum: int = conf_key(
        "managedLedgerDefaultAckQuorum",
        2,
        minimum=1,
        doc="Bookies that must have an entry on disk before it counts. With fewer than 2 the loss of one disk can lose it.",
    )

    # The bookies' client
    bookie_timeout_s: int = conf_key(
        "bookkeeperClientTimeoutInSeconds",
        30,
        minimum=1,
        doc="A bookie that has not answered for so long has failed; a writer replaces it.",
    )
    bookie_v2_protocol: bool = conf_key(
        "bookkeeperUseV2WireProtocol", True, doc="false: speak version 3 of the bookies' protocol only."
    )
    speculative_read_ms: int = conf_key(
        "bookkeeperClientSpeculativeReadTimeoutInMillis",
        0,
        minimum=0,
        doc="A read that takes longer is sent to the next bookie too. 0: as soon as that is known to be faster.",
    )
    sticky_reads: bool = conf_key(
        "bookkeeperEnableStickyReads", True, doc="Read a ledger from one bookie, whose read-ahead then helps."
    )
    reorder_reads: bool = conf_key(
        "bookkeeperClientReorderReadSequenceEnabled", True, doc="Bookies that failed or were slow are asked last."
    )
    explicit_lac_ms: int = conf_key(
        "bookkeeperExplicitLacIntervalInMills",
        0,
        minimum=0,
        doc="How often a ledger's writer tells its last confirmed entry if no entry carried it. 0: never.",
    )
    rack_aware: bool = conf_key(
        "bookkeeperClientRackawarePolicyEnabled", True, doc="false: bookies are chosen at random, wherever they are."
    )
    racks_min: int = conf_key(
        "bookkeeperClientMinNumRacksPerWriteQuorum",
        2,
        minimum=1,
        doc="Racks over which the copies of an entry are spread, as far as there are so many.",
    )
    racks_enforced: bool = conf_key(
        "bookkeeperClientEnforceMinNumRacksPerWriteQuorum", False, doc="true: rather no ledger than one on fewer racks."
    )
    bookie_health_check: bool = conf_key(
        "bookkeeperClientHealthCheckEnabled", True, doc="Give bookies that fail often no new ledgers for a time."
    )
    bookie_health_interval_s: int = conf_key(
        "bookkeeperClientHealthCheckIntervalSeconds",
        60,
        minimum=1,
        doc="Interval in which a bookie's errors are counted.",
    )
    bookie_health_errors: int = conf_key(
        "bookkeeperClientHealthCheckErrorThresholdPerInterval",
        5,
        minimum=1,
        doc="Errors that are too many for one interval.",
    )
    bookie_quarantine_s: int = conf_key(
        "bookkeeperClientHealthCheckQuarantineTimeInSeconds",
        1800,
        minimum=1,
        doc="How long it then gets no new ledgers.",
    )
    bookie_quarantine_ratio: float = conf_key(
        "bookkeeperClientQuarantineRatio",
        1.0,
        minimum=0,
        maximum=1,
        doc="How probable it is that this broker does so, lest all brokers leave a bookie at once.",
    )

    # Namespaces and their bundles
    bundles_default: int = conf_key(
        "defaultNumberOfNamespaceBundles",
        4,
        minimum=1,
        maximum=1 << 16,
        doc="Bundles of a namespace that is made without saying how many. Bundles are what brokers share.",
    )
    bundle_unload_timeout_ms: int = conf_key(
        "namespaceBundleUnloadingTimeoutMs",
        60_000,
        minimum=1,
        doc="How long the topics of a bundle may take to close before it is given away all the same.",
    )
    load_balancing: bool = conf_key(
        "loadBalancerEnabled", True, doc="false: bundles stay where they are, and as large as they are."
    )
    auto_shed: bool = conf_key(
        "loadBalancerSheddingEnabled", True, doc="Move bundles away from brokers with too much load."
    )
    shed_interval_minutes: int = conf_key(
        "loadBalancerSheddingIntervalMinutes", 1, minimum=1, doc="How often the leader looks for such brokers."
    )
    shed_grace_minutes: int = conf_key(
        "loadBalancerSheddingGracePeriodMinutes",
        30,
        minimum=0,
        doc="A bundle that was moved stays where it is for so long.",
    )
    shed_threshold_percent: int = conf_key(
        "loadBalancerBrokerThresholdShedderPercentage",
        10,
        minimum=1,
        doc="How far above the average of all a broker's load may be, in percent of the average.",
    )
    report_interval_ms: int = conf_key(
        "loadBalancerReportUpdateMinIntervalMillis", 5000, minimum=100, doc="How often a broker looks at its own load."
    )
    report_threshold_percent: int = conf_key(
        "loadBalancerReportUpdateThresholdPercentage",
        10,
        minimum=0,
        doc="A change of its load that it reports at once.",
    )
    report_max_minutes: int = conf_key(
        "loadBalancerReportUpdateMaxIntervalMinutes", 15, minimum=1, doc="After so long it reports any change."
    )
    auto_split: bool = conf_key("loadBalancerAutoBundleSplitEnabled", True, doc="Split bundles that are too large.")
    bundle_topics_max: int = conf_key(
        "loadBalancerNamespaceBundleMaxTopics", 1000, minimum=1, doc="Topics of a bundle that is not too large."
    )
    bundle_sessions_max: int = conf_key(
        "loadBalancerNamespaceBundleMaxSessions", 1000, minimum=1, doc="The same for its producers and consumers."
    )
    bundle_message_rate_max: int = conf_key(
        "loadBalancerNamespaceBundleMaxMsgRate", 30_000, minimum=1, doc="The same for messages a second, in and out."
    )
    bundle_bandwidth_mb_max: int = conf_key(
        "loadBalancerNamespaceBundleMaxBandwidthMbytes",
        100,
        minimum=1,
        doc="The same for megabytes a second, in and out.",
    )
    bundles_max: int = conf_key(
        "loadBalancerNamespaceMaximumBundles",
        128,
        minimum=1,
        doc="Bundles of a namespace, from which on none is split.",
    )
    force_delete_namespace: bool = conf_key(
        "forceDeleteNamespaceAllowed",
        False,
        doc="true: DELETE of a namespace with ?force=true deletes its topics, too.",
    )
    force_delete_tenant: bool = conf_key(
        "forceDeleteTenantAllowed", False, doc="true: DELETE of a tenant with ?force=true deletes its namespaces, too."
    )

    def __post_init__(self) -> None:
        if not self.ack_quorum <= self.write_quorum <= self.ensemble_size:
            raise ValueError(
                f"managedLedgerDefaultAckQuorum={self.ack_quorum} <= managedLedgerDefaultWriteQuorum={self.write_quorum} <= "
                f"managedLedgerDefaultEnsembleSize={self.ensemble_size} must hold"
            )
        if self.zk_auth and self.zk_auth.count(":") < 2:
            raise ValueError("quireZooKeeperAuth: not of the form digest:user:password")
        check_tls_keys(self.zk_tls, self.zk_tls_ca_file, self.zk_tls_certificate_file, self.zk_tls_key_file)

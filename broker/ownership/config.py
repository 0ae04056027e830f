"""Options of ownership. Names in brackets are keys of Pulsar's broker.conf."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipOptions:
    """Options of ownership. Times in seconds, rates per second."""

    cluster_name: str = "standalone"
    """Cluster of new namespaces. (clusterName)"""
    bundles_default: int = 4
    """Default bundles of a new namespace. (defaultNumberOfNamespaceBundles)"""
    unload_timeout_s: float = 60.0
    """Time for the topics of a bundle to close; the rest is dropped. (namespaceBundleUnloadingTimeoutMs)"""
    lookup_timeout_s: float = 20.0
    """Time a lookup waits while a bundle has no owner that answers; less than clients wait (30 s)."""
    metadata_hold_s: float = 8.0
    """Time a lookup waits while the metadata service is away or has no registered broker. Longer than a change of its
    leader takes, with the sessions that end in it. After that the client may ask another broker."""
    recheck_s: float = 30.0
    """Interval at which watched nodes are read again, because a watch may be late or missed."""
    lease_fresh_s: float = 0.5
    """Maximum age of a look at a lease for loading a topic. Well below a session's timeout: no other broker can have
    taken the bundle within it."""
    probe_timeout_s: float = 1.0
    """Time within which a broker has to answer a CONNECT to be sent clients."""
    probe_good_s: float = 0.25
    """Time for which that answer is valid."""
    probe_again_s: float = 0.25
    """Time between attempts at a broker that does not answer."""
    load_balancing: bool = True
    """Whether the leader moves and splits bundles. (loadBalancerEnabled)"""
    auto_split: bool = True
    """Whether the leader splits bundles. (loadBalancerAutoBundleSplitEnabled)"""
    auto_shed: bool = True
    """Whether the leader moves bundles. (loadBalancerSheddingEnabled)"""
    shed_interval_s: float = 60.0
    """Time between two rounds of moves. (loadBalancerSheddingIntervalMinutes)"""
    shed_grace_s: float = 1800.0
    """Time for which a moved bundle stays where it is. (loadBalancerSheddingGracePeriodMinutes)"""
    shed_threshold_percent: float = 10.0
    """Load above the average from which a broker is overloaded. (loadBalancerBrokerThresholdShedderPercentage)"""
    report_interval_s: float = 5.0
    """Interval at which a broker checks whether its load has changed. (loadBalancerReportUpdateMinIntervalMillis)"""
    report_threshold_percent: float = 10.0
    """Change of load that is reported at once. (loadBalancerReportUpdateThresholdPercentage)"""
    report_max_s: float = 900.0
    """Time after which any change is reported. (loadBalancerReportUpdateMaxIntervalMinutes)"""
    bundle_topics_max: int = 1000
    """Topics above which a bundle is split. (loadBalancerNamespaceBundleMaxTopics)"""
    bundle_sessions_max: int = 1000
    """Producers and consumers above which a bundle is split. (loadBalancerNamespaceBundleMaxSessions)"""
    bundle_message_rate_max: float = 30_000.0
    """Messages per second, in and out, above which a bundle is split. (loadBalancerNamespaceBundleMaxMsgRate)"""
    bundle_bandwidth_mb_max: float = 100.0
    """Bandwidth, in and out, above which a bundle is split. (loadBalancerNamespaceBundleMaxBandwidthMbytes)"""
    bundles_max: int = 128
    """Maximum bundles of a namespace after splits. (loadBalancerNamespaceMaximumBundles)"""

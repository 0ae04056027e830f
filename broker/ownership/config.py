"""What ownership can be told; names in brackets are keys of Pulsar's broker.conf."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipOptions:
    """Options of ownership. Times in seconds, rates per second."""

    cluster_name: str = "standalone"
    """Of new namespaces. (clusterName)"""
    bundles_default: int = 4
    """Bundles of a namespace that is made without saying. (defaultNumberOfNamespaceBundles)"""
    unload_timeout_s: float = 60.0
    """For the topics of a bundle to close; what is left then is dropped. (namespaceBundleUnloadingTimeoutMs)"""
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
    """Between attempts at one that does not."""
    load_balancing: bool = True
    """Whether the leader moves and splits bundles. (loadBalancerEnabled)"""
    auto_split: bool = True
    """(loadBalancerAutoBundleSplitEnabled)"""
    auto_shed: bool = True
    """(loadBalancerSheddingEnabled)"""
    shed_interval_s: float = 60.0
    """(loadBalancerSheddingIntervalMinutes)"""
    shed_grace_s: float = 1800.0
    """A bundle that was moved stays where it is for so long. (loadBalancerSheddingGracePeriodMinutes)"""
    shed_threshold_percent: float = 10.0
    """How far above the average a broker's load may be. (loadBalancerBrokerThresholdShedderPercentage)"""
    report_interval_s: float = 5.0
    """How often a broker looks whether its load has changed. (loadBalancerReportUpdateMinIntervalMillis)"""
    report_threshold_percent: float = 10.0
    """A change of this much is reported at once. (loadBalancerReportUpdateThresholdPercentage)"""
    report_max_s: float = 900.0
    """Any change is reported after so long. (loadBalancerReportUpdateMaxIntervalMinutes)"""
    bundle_topics_max: int = 1000
    """(loadBalancerNamespaceBundleMaxTopics)"""
    bundle_sessions_max: int = 1000
    """Producers and consumers. (loadBalancerNamespaceBundleMaxSessions)"""
    bundle_message_rate_max: float = 30_000.0
    """In and out. (loadBalancerNamespaceBundleMaxMsgRate)"""
    bundle_bandwidth_mb_max: float = 100.0
    """In and out. (loadBalancerNamespaceBundleMaxBandwidthMbytes)"""
    bundles_max: int = 128
    """Of a namespace, that splitting goes to. (loadBalancerNamespaceMaximumBundles)"""

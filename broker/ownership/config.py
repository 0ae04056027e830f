"""Settings of ownership: keys of Pulsar's broker.conf."""

from __future__ import annotations

from dataclasses import dataclass

from quire.service.config import MB, MINUTES_IN_S, MS_IN_S, PERCENT, conf_key


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipOptions:
    """Options of ownership. Times in seconds, rates per second."""

    cluster_name: str = "standalone"
    """Cluster of new namespaces: the broker's."""
    persistent_topics: bool = True
    non_persistent_topics: bool = True
    """Kinds of topics that the broker serves, as its report says."""
    bundles_default: int = conf_key(
        "defaultNumberOfNamespaceBundles",
        4,
        minimum=1,
        maximum=1 << 16,
        dynamic=True,
        doc="Number of bundles of a namespace that is created without a number. Brokers share topics by bundles.",
    )
    unload_timeout_s: float = conf_key(
        "namespaceBundleUnloadingTimeoutMs",
        60_000,
        unit=MS_IN_S,
        minimum=1,
        dynamic=True,
        doc="Maximum time for the topics of a bundle to close; after it the bundle is released anyway.",
    )
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
    load_balancing: bool = conf_key(
        "loadBalancerEnabled",
        True,
        doc="false: bundles are neither moved nor split.",
    )
    auto_split: bool = conf_key(
        "loadBalancerAutoBundleSplitEnabled",
        True,
        dynamic=True,
        doc="true: bundles that are too large are split.",
    )
    auto_shed: bool = conf_key(
        "loadBalancerSheddingEnabled",
        True,
        dynamic=True,
        doc="true: bundles are moved away from brokers with too much load.",
    )
    resource_usage_interval_s: float = conf_key(
        "resourceUsageTransportPublishIntervalInSecs",
        60,
        minimum=1,
        dynamic=True,
        doc="Seconds after which brokers share the rates of resource groups again, by their use.",
    )
    shed_interval_s: float = conf_key(
        "loadBalancerSheddingIntervalMinutes",
        1,
        unit=MINUTES_IN_S,
        minimum=1,
        dynamic=True,
        doc="Time between the leader's searches for brokers with too much load.",
    )
    shed_grace_s: float = conf_key(
        "loadBalancerSheddingGracePeriodMinutes",
        30,
        unit=MINUTES_IN_S,
        minimum=0,
        dynamic=True,
        doc="Time during which a moved bundle is not moved again.",
    )
    shed_threshold_percent: float = conf_key(
        "loadBalancerBrokerThresholdShedderPercentage",
        10,
        unit=PERCENT,
        minimum=1,
        dynamic=True,
        doc="Maximum load of a broker above the average of all, in percent of the average.",
    )
    failure_domains: bool = conf_key(
        "failureDomainsEnabled",
        False,
        dynamic=True,
        doc="true: namespaces of one anti-affinity group are spread over failure domains first, and over the brokers "
        "of a domain then. false: over brokers.",
    )
    report_interval_s: float = conf_key(
        "loadBalancerReportUpdateMinIntervalMillis",
        5000,
        unit=MS_IN_S,
        minimum=100,
        dynamic=True,
        doc="Time between two measurements of a broker's own load.",
    )
    report_threshold_percent: float = conf_key(
        "loadBalancerReportUpdateThresholdPercentage",
        10,
        unit=PERCENT,
        minimum=0,
        dynamic=True,
        doc="Change of its load that a broker reports at once.",
    )
    report_max_s: float = conf_key(
        "loadBalancerReportUpdateMaxIntervalMinutes",
        15,
        unit=MINUTES_IN_S,
        minimum=1,
        dynamic=True,
        doc="Time after which a broker reports any change of its load.",
    )
    bundle_topics_max: int = conf_key(
        "loadBalancerNamespaceBundleMaxTopics",
        1000,
        minimum=1,
        dynamic=True,
        doc="Topics above which a bundle is too large.",
    )
    bundle_sessions_max: int = conf_key(
        "loadBalancerNamespaceBundleMaxSessions",
        1000,
        minimum=1,
        dynamic=True,
        doc="Producers and consumers above which a bundle is too large.",
    )
    bundle_message_rate_max: float = conf_key(
        "loadBalancerNamespaceBundleMaxMsgRate",
        30_000,
        minimum=1,
        dynamic=True,
        doc="Messages per second, in and out, above which a bundle is too large.",
    )
    bundle_bandwidth_mb_max: float = conf_key(
        "loadBalancerNamespaceBundleMaxBandwidthMbytes",
        100,
        unit=MB,
        minimum=1,
        dynamic=True,
        doc="Megabytes per second, in and out, above which a bundle is too large.",
    )
    bundles_max: int = conf_key(
        "loadBalancerNamespaceMaximumBundles",
        128,
        minimum=1,
        dynamic=True,
        doc="Number of bundles of a namespace at which none is split any more.",
    )

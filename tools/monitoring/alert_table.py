"""Alerts of brokers, bookies and auto recovery.

Thresholds are for a first day; docs/operating.md says how to change them. An expression has no value while all is well.
"""

from __future__ import annotations

from typing import Final

from tools.monitoring.alerts import Alert

CERTIFICATE_DAYS: Final = 14

_BROKERS: Final = (
    Alert(
        name="QuireBrokerDown",
        group="quire-brokers",
        severity="critical",
        expression='up{job=~"quire-broker|quire-standalone"} == 0',
        seconds=60,
        summary="{{ $labels.instance }} does not answer",
        description="Prometheus cannot scrape this broker: its process is gone or hangs, or the network is cut.",
    ),
    Alert(
        name="QuireBrokerNotReady",
        group="quire-brokers",
        severity="critical",
        expression="pulsar_health == 0",
        seconds=60,
        summary="The health check of {{ $labels.instance }} fails",
        description="The last GET /admin/v2/brokers/health failed: metadata, bookies or the disk. Its answer names the "
        "reason.",
    ),
    Alert(
        name="QuireMetadataSessionLost",
        group="quire-brokers",
        severity="critical",
        expression="quire_metadata_connected == 0",
        seconds=30,
        summary="{{ $labels.instance }} has no connection to ZooKeeper",
        description="Loaded topics are served further, but no topic is loaded, and no ledger begun or ended.",
    ),
    Alert(
        name="QuireOwnershipFlaps",
        group="quire-brokers",
        severity="warning",
        expression="changes(quire_bundles_owned[$window]) > 6",
        window="15m",
        seconds=0,
        summary="Bundles come and go at {{ $labels.instance }}",
        description="The number of bundles served here has changed {{ $value }} times in the window. Each move closes "
        "topics and disconnects clients for a moment.",
    ),
    Alert(
        name="QuireEventLoopHeld",
        group="quire-brokers",
        severity="warning",
        expression="max_over_time(quire_event_loop_longest_pass_ms[$window]) > 500",
        window="5m",
        seconds=0,
        summary="The event loop of {{ $labels.instance }} was held for {{ $value }} ms",
        description="Everything that the process serves waited for this time.",
    ),
    Alert(
        name="QuireMemoryNearBound",
        group="quire-brokers",
        severity="warning",
        expression="process_resident_memory_bytes / quire_memory_limit_bytes > 0.9",
        seconds=300,
        summary="{{ $labels.instance }} uses {{ $value | humanizePercentage }} of its memory",
        description="At the limit the kernel ends the process. That is the limit of its control group, or the machine.",
    ),
    Alert(
        name="QuireCertificateExpiresSoon",
        group="quire-brokers",
        severity="warning",
        expression=f"quire_certificate_expiry_timestamp_seconds - time() < {CERTIFICATE_DAYS} * 86400",
        seconds=0,
        summary="The certificate of {{ $labels.server }} at {{ $labels.instance }} expires in "
        "{{ $value | humanizeDuration }}",
        description="After that no client connects. Replace the files: they are read again without a restart.",
    ),
)
_TOPICS: Final = (
    Alert(
        name="QuireBacklogAgeGrows",
        group="quire-topics",
        severity="warning",
        expression="pulsar_storage_backlog_age_seconds > 3600\n"
        "and delta(pulsar_storage_backlog_age_seconds[$window]) > 0",
        window="15m",
        seconds=300,
        summary="The oldest message not acknowledged of {{ $labels.topic }} is {{ $value | humanizeDuration }} old",
        description="Its slowest subscription is behind, and falls further behind.",
    ),
    Alert(
        name="QuireSubscriptionStandsStill",
        group="quire-topics",
        severity="critical",
        expression="""\
pulsar_subscription_back_log{subscription!~".*spark.*"} - pulsar_subscription_delayed > 0
and pulsar_subscription_consumers_count > 0
and resets(pulsar_subscription_back_log[$window]) == 0
and increase(pulsar_out_messages_total[$window]) == 0""",
        window="10m",
        seconds=300,
        summary="{{ $labels.subscription }} of {{ $labels.topic }} stands still, with {{ $value }} entries waiting",
        description="It has consumers, but nothing was delivered to them or acknowledged by them.",
    ),
    Alert(
        name="QuireConsumerHoldsUnacked",
        group="quire-topics",
        severity="warning",
        expression="min_over_time(pulsar_subscription_unacked_messages[$window]) > 1000\n"
        "and resets(pulsar_subscription_back_log[$window]) == 0",
        window="15m",
        seconds=300,
        summary="Consumers of {{ $labels.subscription }} hold {{ $value }} messages without acknowledging any",
        description="Messages of {{ $labels.topic }} were delivered, and none was acknowledged in the window. At the "
        "bound of maxUnackedMessagesPerConsumer nothing more is delivered.",
    ),
    Alert(
        name="QuireProducersThrottled",
        group="quire-topics",
        severity="warning",
        expression="increase(pulsar_publish_rate_limit_times[$window]) > 0",
        window="5m",
        seconds=300,
        summary="Producers of {{ $labels.topic }} are held at its publish rate",
        description="They publish more than the policy of the topic, namespace or broker allows.",
    ),
    Alert(
        name="QuireBacklogQuotaExceeded",
        group="quire-topics",
        severity="warning",
        expression="increase(quire_backlog_quota_exceeded[$window]) > 0",
        window="5m",
        seconds=0,
        summary="Topics at {{ $labels.instance }} are above their backlog quota",
        description="As its policy says, producers are held or refused, or the oldest messages are dropped "
        "(quota_type {{ $labels.quota_type }}).",
    ),
    Alert(
        name="QuireStorageWriteSlow",
        group="quire-topics",
        severity="warning",
        expression="""\
sum by (job, instance) (rate(quire_publish_latency_ms_sum[$window]))
/ sum by (job, instance) (rate(quire_publish_latency_ms_count[$window])) > 250""",
        window="5m",
        seconds=300,
        summary="Writes of {{ $labels.instance }} take {{ $value }} ms on average",
        description="From the arrival of a message until the ack quorum of bookies has it on disk.",
    ),
    Alert(
        name="QuireSparkQueryLags",
        group="quire-topics",
        severity="warning",
        expression="""\
pulsar_subscription_back_log{subscription=~".*spark.*"} > 0
and resets(pulsar_subscription_back_log{subscription=~".*spark.*"}[$window]) == 0
and pulsar_subscription_back_log{subscription=~".*spark.*"} offset $window >= 0""",
        window="30m",
        seconds=300,
        summary="The Spark query of {{ $labels.subscription }} has committed nothing",
        description="{{ $value }} entries of {{ $labels.topic }} wait, and its subscription has not advanced in the "
        "window.",
    ),
)
_BOOKIE_ALERTS: Final = (
    Alert(
        name="QuireBookieDown",
        group="quire-bookies",
        severity="critical",
        expression='up{job="quire-bookie"} == 0',
        seconds=60,
        summary="{{ $labels.instance }} does not answer",
        description="Prometheus cannot scrape this bookie. Auto recovery copies its entries if it stays away.",
    ),
    Alert(
        name="QuireBookieReadOnly",
        group="quire-bookies",
        severity="warning",
        expression="bookie_SERVER_STATUS == 0",
        seconds=60,
        summary="{{ $labels.instance }} is read-only",
        description="Its disk is full, or an operator has made it read-only. It gets no new ledgers.",
    ),
    Alert(
        name="QuireJournalSyncSlow",
        group="quire-bookies",
        severity="warning",
        expression="""\
sum by (job, instance) (rate(bookie_journal_JOURNAL_SYNC_sum{success="true"}[$window]))
/ sum by (job, instance) (rate(bookie_journal_JOURNAL_SYNC_count{success="true"}[$window])) > 100""",
        window="5m",
        seconds=300,
        summary="A sync of the journal of {{ $labels.instance }} takes {{ $value }} ms on average",
        description="Every message waits for at least one sync.",
    ),
    Alert(
        name="QuireDiskFilling",
        group="quire-bookies",
        severity="warning",
        expression="quire_disk_free_bytes / quire_disk_size_bytes < 0.15",
        seconds=300,
        summary="The disk of {{ $labels.instance }} has {{ $value | humanizePercentage }} left",
        description="Folder {{ $labels.folder }}. When it is full, publishing stops until there is room.",
    ),
    Alert(
        name="QuireDiskFull",
        group="quire-bookies",
        severity="critical",
        expression="quire_disk_full == 1",
        seconds=0,
        summary="The disk of {{ $labels.instance }} is full",
        description="It takes no new messages; reading and acknowledging continue.",
    ),
    Alert(
        name="QuireLedgersUnderReplicated",
        group="quire-bookies",
        severity="critical",
        expression="auditor_NUM_UNDER_REPLICATED_LEDGERS_GUAGE > 0 and auditor_IS_AUDITOR == 1",
        seconds=900,
        summary="{{ $value }} ledgers lack copies",
        description="A bookie is lost, and its ledgers have not all their copies again.",
    ),
    Alert(
        name="QuireLedgersUnreadable",
        group="quire-bookies",
        severity="critical",
        expression="increase(replication_worker_NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION[$window]) > 0",
        window="30m",
        seconds=0,
        summary="{{ $labels.instance }} found no good copy of an entry",
        description="A fragment cannot be repaired, since no bookie that answers has all of its entries.",
    ),
    Alert(
        name="QuireNoAuditor",
        group="quire-bookies",
        severity="critical",
        expression="""\
absent(auditor_IS_AUDITOR == 1)
and on () count(up{job=~"quire-bookie|quire-autorecovery"}) > 0""",
        seconds=120,
        summary="No auto recovery is the auditor",
        description="Lost bookies are not noticed, nothing is copied. Auto recovery is down, or not scraped.",
    ),
)
ALERTS: Final = (*_BROKERS, *_TOPICS, *_BOOKIE_ALERTS)

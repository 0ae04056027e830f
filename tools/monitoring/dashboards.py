"""The dashboards: standalone, broker, bookie, Spark."""

from __future__ import annotations

from typing import Final

from tools.monitoring.bookie_panels import BOOKIE
from tools.monitoring.broker_panels import CLIENTS, HERE, OVERVIEW, SUBSCRIPTIONS, TRAFFIC, VARIABLES, rate
from tools.monitoring.panels import Dashboard, Panel, Query, Row
from tools.monitoring.spark_panels import SPARK

_OWNERSHIP: Final = Row(
    "Ownership and metadata",
    (
        Panel(
            "Bundles",
            "short",
            "Bundles served by each broker. Equal lines: the load is spread. Lines that jump: see QuireOwnershipFlaps.",
            (Query(f"quire_bundles_owned{HERE}", "{{instance}}"),),
            width=12,
        ),
        Panel(
            "ZooKeeper",
            "bool_on_off",
            "On while the broker has a session of ZooKeeper.",
            (Query(f"quire_metadata_connected{HERE}", "{{instance}}"),),
            width=12,
        ),
    ),
)
_PROCESS: Final = Row(
    "Process",
    (
        Panel(
            "Memory",
            "bytes",
            "Resident memory of the process, and its limit.",
            (
                Query(f"process_resident_memory_bytes{HERE}", "{{instance}}"),
                Query(f"quire_memory_limit_bytes{HERE}", "limit {{instance}}"),
            ),
        ),
        Panel(
            "CPU",
            "percentunit",
            "Share of one core. The event loop has one core, so it is saturated near 100 %.",
            (Query(rate("process_cpu_seconds_total"), "{{instance}}"),),
        ),
        Panel(
            "Longest pass of the event loop",
            "ms",
            "Longest time since the scrape before for which one pass of the event loop held everything else.",
            (Query(f"quire_event_loop_longest_pass_ms{HERE}", "{{instance}}"),),
            warning_above=100,
        ),
    ),
)
_DISK: Final = Row(
    "Disk",
    (
        Panel(
            "Free room",
            "bytes",
            "Bytes free on the disks of journal and ledgers.",
            (Query(f"quire_disk_free_bytes{HERE}", "{{instance}} {{folder}}"),),
        ),
        Panel(
            "Share free",
            "percentunit",
            "Free share of the disks. Below 15 %: QuireDiskFilling.",
            (Query(f"quire_disk_free_bytes{HERE} / quire_disk_size_bytes{HERE}", "{{instance}} {{folder}}"),),
            warning_below=0.15,
        ),
        Panel(
            "Full",
            "bool_on_off",
            "On while nothing is accepted for lack of room.",
            (Query(f"quire_disk_full{HERE}", "{{instance}}"),),
        ),
    ),
)
STANDALONE: Final = Dashboard(
    "quire-standalone",
    "Quire / Standalone",
    "One server with everything: topics, subscriptions, clients, and the bookie and disk within.",
    VARIABLES,
    (
        OVERVIEW,
        TRAFFIC,
        SUBSCRIPTIONS,
        CLIENTS,
        Row(
            "Bookie",
            (
                Panel(
                    "Entries",
                    "ops",
                    "Entries added to the bookie and read from it per second.",
                    (
                        Query(rate("bookie_adds"), "added {{instance}}"),
                        Query(rate("bookie_reads"), "read {{instance}}"),
                    ),
                ),
                Panel(
                    "Bytes added",
                    "Bps",
                    "Bytes of entries added to the bookie per second.",
                    (Query(rate("bookie_add_bytes"), "{{instance}}"),),
                ),
                Panel(
                    "Syncs of the journal",
                    "ops",
                    "Groups written and synced per second. Entries divided by syncs is the size of a group.",
                    (Query(rate("bookie_journal_syncs"), "{{instance}}"),),
                ),
            ),
        ),
        _DISK,
        _PROCESS,
    ),
)
BROKER: Final = Dashboard(
    "quire-broker",
    "Quire / Brokers",
    "Brokers of a cluster: topics, subscriptions, clients, ownership.",
    VARIABLES,
    (OVERVIEW, TRAFFIC, SUBSCRIPTIONS, CLIENTS, _OWNERSHIP, _PROCESS),
)
DASHBOARDS: Final = (STANDALONE, BROKER, BOOKIE, SPARK)

"""One story of each alert, as series in promtool's notation with a sample a minute: a fault, and the same in health."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

SUBSCRIPTION: Final = '{job="quire-broker",instance="b",topic="t",subscription="s"}'
TOPIC: Final = '{job="quire-broker",instance="b",topic="t"}'
SPARK: Final = '{job="quire-broker",instance="b",topic="t",subscription="spark-q"}'
BOOKIE: Final = '{job="quire-bookie",instance="k"}'
GOOD: Final = '{job="quire-bookie",instance="k",success="true"}'
BROKER: Final = '{job="quire-broker",instance="b"}'
Series = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Story:
    """Series of a fault, and of health that looks much like it."""

    fault: Series
    health: Sequence[Series]
    minutes: int = 40
    """When the alert must have fired."""


def _waiting(backlog: str, out: str, delayed: str = "0x60", consumers: str = "1x60") -> Series:
    return {
        f"pulsar_subscription_back_log{SUBSCRIPTION}": backlog,
        f"pulsar_out_messages_total{SUBSCRIPTION}": out,
        f"pulsar_subscription_delayed{SUBSCRIPTION}": delayed,
        f"pulsar_subscription_consumers_count{SUBSCRIPTION}": consumers,
    }


def _held(unacked: str, backlog: str) -> Series:
    return {
        f"pulsar_subscription_unacked_messages{SUBSCRIPTION}": unacked,
        f"pulsar_subscription_back_log{SUBSCRIPTION}": backlog,
    }


def _mean(name: str, labels: str, step: int) -> Series:
    """Return a hundred operations a minute of so many ms each."""
    return {f"{name}_count{labels}": "0+100x60", f"{name}_sum{labels}": f"0+{100 * step}x60"}


def _one(name: str, fault: str, *health: str, minutes: int = 40) -> Story:
    return Story({name: fault}, [{name: each} for each in health], minutes)


STORIES: Final[Mapping[str, Story]] = {
    "QuireBrokerDown": _one(f"up{BROKER}", "1x20 0x40", "1x60"),
    "QuireBrokerNotReady": _one(f"pulsar_health{BROKER}", "1x20 0x40", "1x60", "-1x60"),
    "QuireMetadataSessionLost": _one(f"quire_metadata_connected{BROKER}", "1x20 0x40", "1x60"),
    "QuireOwnershipFlaps": _one(f"quire_bundles_owned{BROKER}", "4 " + "3 4 " * 30, "0 1 2 3 4 4x50", "4x60"),
    "QuireEventLoopHeld": _one(f"quire_event_loop_longest_pass_ms{BROKER}", "10x36 900 10x20", "20x60", "200x60"),
    "QuireMemoryNearBound": Story(
        {
            f"process_resident_memory_bytes{BROKER}": "100x20 950x40",
            f"quire_memory_limit_bytes{BROKER}": "1000x60",
        },
        [{f"process_resident_memory_bytes{BROKER}": "800x60", f"quire_memory_limit_bytes{BROKER}": "1000x60"}],
    ),
    "QuireCertificateExpiresSoon": _one(
        'quire_certificate_expiry_timestamp_seconds{instance="b",server="broker"}', "1000000x60", "9000000x60"
    ),
    "QuireBacklogAgeGrows": _one(
        f"pulsar_storage_backlog_age_seconds{TOPIC}", "3000+60x60", "0x60", "-1x60", "100+30x60", "9000-60x60"
    ),
    "QuireSubscriptionStandsStill": Story(
        _waiting("5x60", "7x60"),
        [
            _waiting("0x60", "7x60"),
            _waiting("5x60", "7+1x60"),
            _waiting("5x60", "7x60", delayed="5x60"),
            _waiting("5x60", "7x60", consumers="0x60"),
            _waiting("5 4 " * 30, "7x60"),
        ],
    ),
    "QuireConsumerHoldsUnacked": Story(
        _held("5000x60", "6000+1x60"), [_held("900x60", "6000+1x60"), _held("5000x60", "6000 5990 " * 30)]
    ),
    "QuireProducersThrottled": _one(f"pulsar_publish_rate_limit_times{TOPIC}", "0+3x60", "0x60", "9x60"),
    "QuireBacklogQuotaExceeded": _one(
        'quire_backlog_quota_exceeded{instance="b",quota_type="destination_storage"}', "0x37 1x20", "0x60", "4x60"
    ),
    "QuireStorageWriteSlow": Story(
        _mean("quire_publish_latency_ms", TOPIC, 400), [_mean("quire_publish_latency_ms", TOPIC, 12)]
    ),
    "QuireSparkQueryLags": Story(
        {f"pulsar_subscription_back_log{SPARK}": "0+50x90"},
        [
            {f"pulsar_subscription_back_log{SPARK}": "0x90"},
            {f"pulsar_subscription_back_log{SPARK}": "50 100 20 " * 30},
            {f"pulsar_subscription_back_log{SUBSCRIPTION}": "0+50x90"},
        ],
        minutes=80,
    ),
    "QuireBookieDown": Story(
        {f"up{BOOKIE}": "1x20 0x40"}, [{f"up{BOOKIE}": "1x60", f"auditor_IS_AUDITOR{BOOKIE}": "1x60"}]
    ),
    "QuireBookieReadOnly": _one(f"bookie_SERVER_STATUS{BOOKIE}", "1x20 0x40", "1x60"),
    "QuireJournalSyncSlow": Story(
        _mean("bookie_journal_JOURNAL_SYNC", GOOD, 300), [_mean("bookie_journal_JOURNAL_SYNC", GOOD, 8)]
    ),
    "QuireDiskFilling": Story(
        {f"quire_disk_free_bytes{BOOKIE}": "100x60", f"quire_disk_size_bytes{BOOKIE}": "1000x60"},
        [{f"quire_disk_free_bytes{BOOKIE}": "500x60", f"quire_disk_size_bytes{BOOKIE}": "1000x60"}],
    ),
    "QuireDiskFull": _one(f"quire_disk_full{BOOKIE}", "0x20 1x40", "0x60"),
    "QuireLedgersUnderReplicated": Story(
        {f"auditor_NUM_UNDER_REPLICATED_LEDGERS_GUAGE{BOOKIE}": "3x60", f"auditor_IS_AUDITOR{BOOKIE}": "1x60"},
        [
            {f"auditor_NUM_UNDER_REPLICATED_LEDGERS_GUAGE{BOOKIE}": "0x60", f"auditor_IS_AUDITOR{BOOKIE}": "1x60"},
            {f"auditor_NUM_UNDER_REPLICATED_LEDGERS_GUAGE{BOOKIE}": "3x60", f"auditor_IS_AUDITOR{BOOKIE}": "0x60"},
            {
                f"auditor_NUM_UNDER_REPLICATED_LEDGERS_GUAGE{BOOKIE}": "0x33 3x5 0x30",
                f"auditor_IS_AUDITOR{BOOKIE}": "1x60",
            },
        ],
    ),
    "QuireLedgersUnreadable": _one(
        f"replication_worker_NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION{BOOKIE}", "0x30 2x30", "0x60", "2x60"
    ),
    "QuireNoAuditor": Story(
        {f"auditor_IS_AUDITOR{BOOKIE}": "1x20 0x40", f"up{BOOKIE}": "1x60"},
        [
            {f"auditor_IS_AUDITOR{BOOKIE}": "1x60", f"up{BOOKIE}": "1x60"},
            {'up{job="quire-standalone",instance="a"}': "1x60"},
        ],
    ),
}

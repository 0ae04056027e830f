"""Settings of auto recovery: keys of bk_server.conf, under the original's names and with its defaults.

Source: BookKeeper's ServerConfiguration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quire.service.config import BYTES, MS, PERCENT, SECONDS, conf_key

SCRIPT_CLASS: Final = "org.apache.bookkeeper.net.ScriptBasedMapping"
RACK_MAP_CLASSES: Final = (
    "org.apache.pulsar.bookie.rackawareness.BookieRackAffinityMapping",
    "org.apache.pulsar.zookeeper.ZkBookieRackAffinityMapping",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OldLedgerKeys:
    """Digest and password of ledgers whose metadata has neither, those of the oldest format."""

    digest_type: str = conf_key(
        "digestType",
        "CRC32",
        choices=("CRC32", "MAC", "CRC32C", "DUMMY"),
        doc="Digest of ledgers in the oldest format, whose metadata does not contain it.",
    )
    password: str = conf_key("passwd", "", doc="Password of ledgers in the oldest format, see digestType.", secret=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRecoveryConfig(OldLedgerKeys):
    """Keys of the auditor and of the replication workers."""

    # --- the auditor

    lost_bookie_recovery_delay_s: int = conf_key(
        "lostBookieRecoveryDelay",
        0,
        minimum=0,
        unit=SECONDS,
        doc="Time that the auditor waits for a single lost bookie, in seconds, before its ledgers are "
        "copied. If several are lost, it does not wait. The value is stored in the metadata if there is "
        "none yet; a stored value takes precedence.",
    )
    bookie_check_interval_s: int = conf_key(
        "auditorPeriodicBookieCheckInterval",
        86_400,
        minimum=0,
        unit=SECONDS,
        doc="Time between the auditor's periodic searches for lost bookies, in seconds. 0: only at its start.",
    )
    ledger_check_interval_s: int = conf_key(
        "auditorPeriodicCheckInterval",
        604_800,
        minimum=0,
        unit=SECONDS,
        doc="Time between checks that read copies of every fragment of every ledger, in seconds. 0: never.",
    )
    verification_percentage: int = conf_key(
        "auditorLedgerVerificationPercentage",
        0,
        minimum=0,
        maximum=100,
        unit=PERCENT,
        doc="Percentage of each fragment's entries that the check of auditorPeriodicCheckInterval reads. 0: "
        "the first and the last entry.",
    )
    placement_check_interval_s: int = conf_key(
        "auditorPeriodicPlacementPolicyCheckInterval",
        0,
        minimum=0,
        unit=SECONDS,
        doc="Time between counts of the ledgers that violate the placement policy, in seconds. 0: never.",
    )
    repair_placement: bool = conf_key(
        "repairedPlacementPolicyNotAdheringBookieEnabled",
        False,
        doc="true: ledgers that violate the placement policy are marked, and workers move copies until it is met.",
    )
    recovery_grace_period_s: int = conf_key(
        "underreplicatedLedgerRecoveryGracePeriod",
        0,
        minimum=0,
        unit=SECONDS,
        doc="Time without all copies, in seconds, after which the placement check counts and logs a ledger. 0: never.",
    )
    replicas_check_interval_s: int = conf_key(
        "auditorReplicasCheckInterval",
        0,
        minimum=0,
        unit=SECONDS,
        doc="Time between checks that request the list of entries from every bookie and find entries with "
        "too few copies, in seconds. 0: never.",
    )
    open_ledgers_max: int = conf_key(
        "auditorMaxNumberOfConcurrentOpenLedgerOperations",
        500,
        minimum=1,
        doc="Ledgers that the auditor reads, checks or marks concurrently.",
    )
    open_ledger_wait_ms: int = conf_key(
        "auditorAcquireConcurrentOpenLedgerOperationsTimeOutMSec",
        120_000,
        minimum=0,
        unit=MS,
        doc="Time without progress, in milliseconds, after which a check of all ledgers is cancelled until "
        "the next time. 0: never.",
    )
    store_mark_time: bool = conf_key(
        "storeSystemTimeAsLedgerUnderreplicatedMarkTime",
        True,
        doc="true: the mark of a ledger that lacks copies contains the time of its creation.",
    )

    # --- the workers

    batch_entries: int = conf_key(
        "rereplicationEntryBatchSize", 10, minimum=1, doc="Minimum number of entries that a worker copies at a time."
    )
    open_ledger_grace_period_ms: int = conf_key(
        "openLedgerRereplicationGracePeriod",
        30_000,
        minimum=0,
        unit=MS,
        doc="Time that a worker waits for the writer of an open ledger to replace a lost bookie, in "
        "milliseconds; after it the worker closes the ledger.",
    )
    backoff_ms: int = conf_key(
        "rwRereplicateBackoffMs", 5_000, minimum=1, unit=MS, doc="Pause of a worker after a failure, in milliseconds."
    )
    failed_lock_release_ms: int = conf_key(
        "lockReleaseOfFailedLedgerGracePeriod",
        300_000,
        minimum=0,
        unit=MS,
        doc="Maximum time that a worker keeps the lock of a ledger that it could not copy, in milliseconds; "
        "it begins with less, and doubles.",
    )
    rate_bytes: int = conf_key(
        "replicationRateByBytes",
        -1,
        unit=BYTES,
        doc="Maximum bytes per second that a worker copies. -1: no limit.",
    )
    checker_reads_max: int = conf_key(
        "inFlightReadEntryNumInLedgerChecker",
        -1,
        doc="Maximum number of concurrent reads in one check of a ledger. -1: no separate limit.",
    )
    metadata_rate: float = conf_key(
        "zkReplicationTaskRateLimit",
        0.0,
        minimum=0,
        doc="Maximum ledgers per second that a worker takes. 0: no limit.",
    )

    # --- where copies go

    placement_policy: str = conf_key(
        "ensemblePlacementPolicy",
        "rack-aware",
        doc="Policy that chooses bookies for copies: rack-aware, region-aware, zone-aware, random, the original's "
        "class name, or module:Class.",
    )
    min_racks_per_write_quorum: int = conf_key(
        "minNumRacksPerWriteQuorum", 2, minimum=1, doc="Minimum number of racks for the copies of an entry."
    )
    enforce_min_racks_per_write_quorum: bool = conf_key(
        "enforceMinNumRacksPerWriteQuorum",
        False,
        doc="true: a copy that would leave an entry on fewer racks is not made.",
    )
    desired_zones: int = conf_key(
        "desiredNumZonesPerWriteQuorum",
        3,
        minimum=1,
        doc="Number of zones for the copies of an entry, if there are that many; with the zone-aware policy.",
    )
    min_zones: int = conf_key(
        "minNumZonesPerWriteQuorum",
        2,
        minimum=1,
        doc="Minimum number of zones for the copies of an entry, with the zone-aware policy; less than the copies.",
    )
    strict_zones: bool = conf_key(
        "enforceStrictZoneawarePlacement",
        True,
        doc="false: the zone-aware policy chooses bookies at random, also those without a zone.",
    )
    disk_weighted: bool = conf_key(
        "diskWeightBasedPlacementEnabled",
        False,
        doc="true: bookies with more free disk space get more copies.",
    )
    weight_multiple: int = conf_key(
        "bookieMaxMultipleForWeightBasedPlacement",
        3,
        minimum=0,
        doc="Limit of the weight of a bookie in multiples of the median; 0: no limit.",
    )
    weights_interval_s: int = conf_key(
        "getBookieInfoIntervalSeconds",
        86400,
        unit=SECONDS,
        minimum=1,
        doc="Interval at which bookies are asked for their free disk space, with diskWeightBasedPlacementEnabled.",
    )
    weights_retry_s: int = conf_key(
        "getBookieInfoRetryIntervalSeconds",
        60,
        unit=SECONDS,
        minimum=1,
        doc="Time after which a bookie is asked again that did not answer.",
    )
    weights_answer_s: int = conf_key(
        "getBookieInfoTimeoutSecs",
        5,
        unit=SECONDS,
        minimum=1,
        doc="Time without an answer, in seconds, after which a bookie is asked again later.",
    )
    rack_class: str = conf_key(
        "reppDnsResolverClass",
        "",
        choices=("", SCRIPT_CLASS, *RACK_MAP_CLASSES),
        doc="Source of the racks of bookies: org.apache.bookkeeper.net.ScriptBasedMapping asks the script of "
        "networkTopologyScriptFileName, Pulsar's BookieRackAffinityMapping reads its /bookies. Empty: the script if "
        "there is one, else /bookies.",
    )
    rack_script: str = conf_key(
        "networkTopologyScriptFileName",
        "",
        doc="Program that gets hosts of bookies as arguments, and prints a location (/rack, /region/rack or "
        "/zone/upgrade-domain) for each, in 10 seconds. Without a location a bookie is in the default rack. With "
        "ScriptBasedMapping and no script all of them are.",
    )
    rack_script_arguments_max: int = conf_key(
        "networkTopologyScriptNumberArgs", 100, minimum=1, doc="Maximum number of hosts in one call of that program."
    )

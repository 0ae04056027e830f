"""Settings of auto recovery: keys of bk_server.conf, under the original's names and with its defaults.

Source: BookKeeper's ServerConfiguration.
"""

from __future__ import annotations

from dataclasses import dataclass

from quire.service.config import BYTES, MS, PERCENT, SECONDS, conf_key


@dataclass(frozen=True, slots=True, kw_only=True)
class OldLedgerKeys:
    """Digest and password of ledgers whose metadata has neither, those of the oldest format."""

    digest_type: str = conf_key(
        "digestType",
        "CRC32",
        choices=("CRC32", "MAC", "CRC32C", "DUMMY"),
        doc="Digest of ledgers whose metadata does not tell theirs: those of the oldest format.",
    )
    password: str = conf_key("passwd", "", doc="Password of such ledgers.")


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRecoveryConfig(OldLedgerKeys):
    """Keys of the auditor and of the replication workers."""

    # --- the auditor

    lost_bookie_recovery_delay_s: int = conf_key(
        "lostBookieRecoveryDelay",
        0,
        minimum=0,
        unit=SECONDS,
        doc="How long the auditor waits when one bookie is lost, in seconds, before its ledgers are copied; it may "
        "come back. When more are lost it does not wait. Taken into the metadata when that has none yet; what stands "
        "there wins.",
    )
    bookie_check_interval_s: int = conf_key(
        "auditorPeriodicBookieCheckInterval",
        86_400,
        minimum=0,
        unit=SECONDS,
        doc="How often the auditor looks for lost bookies even if it heard of none, in seconds. 0: once, at its start.",
    )
    ledger_check_interval_s: int = conf_key(
        "auditorPeriodicCheckInterval",
        604_800,
        minimum=0,
        unit=SECONDS,
        doc="How often the auditor has copies of every fragment of every ledger read, in seconds. 0: never.",
    )
    verification_percentage: int = conf_key(
        "auditorLedgerVerificationPercentage",
        0,
        minimum=0,
        maximum=100,
        unit=PERCENT,
        doc="Of the entries of each fragment, how many that check reads. 0: the first and the last.",
    )
    placement_check_interval_s: int = conf_key(
        "auditorPeriodicPlacementPolicyCheckInterval",
        0,
        minimum=0,
        unit=SECONDS,
        doc="How often the auditor counts ledgers that are not placed as the placement policy wants, in seconds. 0: "
        "never.",
    )
    repair_placement: bool = conf_key(
        "repairedPlacementPolicyNotAdheringBookieEnabled",
        False,
        doc="true: ledgers that this check finds are marked, and workers move copies until the policy is met.",
    )
    recovery_grace_period_s: int = conf_key(
        "underreplicatedLedgerRecoveryGracePeriod",
        0,
        minimum=0,
        unit=SECONDS,
        doc="A ledger that lacks copies for longer is counted and told by the placement check, in seconds. 0: not "
        "looked at.",
    )
    replicas_check_interval_s: int = conf_key(
        "auditorReplicasCheckInterval",
        0,
        minimum=0,
        unit=SECONDS,
        doc="How often the auditor asks every bookie which entries it has, and counts those with too few copies, in "
        "seconds. 0: never.",
    )
    open_ledgers_max: int = conf_key(
        "auditorMaxNumberOfConcurrentOpenLedgerOperations",
        500,
        minimum=1,
        doc="Ledgers that the auditor reads, checks or marks at once.",
    )
    open_ledger_wait_ms: int = conf_key(
        "auditorAcquireConcurrentOpenLedgerOperationsTimeOutMSec",
        120_000,
        minimum=0,
        unit=MS,
        doc="A check of all ledgers in which nothing moves for so long is given up, in milliseconds, and done again at "
        "the next time. 0: it waits for ever.",
    )
    store_mark_time: bool = conf_key(
        "storeSystemTimeAsLedgerUnderreplicatedMarkTime",
        True,
        doc="true: the mark of a ledger that lacks copies tells since when.",
    )

    # --- the workers

    batch_entries: int = conf_key(
        "rereplicationEntryBatchSize", 10, minimum=1, doc="Entries that a worker copies at once, at least."
    )
    open_ledger_grace_period_ms: int = conf_key(
        "openLedgerRereplicationGracePeriod",
        30_000,
        minimum=0,
        unit=MS,
        doc="How long a worker waits for the writer of an open ledger to replace a lost bookie by itself, in "
        "milliseconds, before it closes the ledger.",
    )
    backoff_ms: int = conf_key(
        "rwRereplicateBackoffMs", 5_000, minimum=1, unit=MS, doc="Pause of a worker after a failure, in milliseconds."
    )
    failed_lock_release_ms: int = conf_key(
        "lockReleaseOfFailedLedgerGracePeriod",
        300_000,
        minimum=0,
        unit=MS,
        doc="How long at most a worker keeps a ledger to itself that it could not copy, in milliseconds; it begins "
        "with less, and doubles.",
    )
    rate_bytes: int = conf_key(
        "replicationRateByBytes",
        -1,
        unit=BYTES,
        doc="Bytes that a worker copies in a second, at most. -1: no limit.",
    )
    checker_reads_max: int = conf_key(
        "inFlightReadEntryNumInLedgerChecker",
        -1,
        doc="Reads under way of one check of a ledger, at most. -1: no limit of its own.",
    )
    metadata_rate: float = conf_key(
        "zkReplicationTaskRateLimit",
        0.0,
        minimum=0,
        doc="Ledgers that a worker takes in a second, at most. 0: no limit.",
    )

    # --- where copies go

    placement_policy: str = conf_key(
        "ensemblePlacementPolicy",
        "rack-aware",
        doc="How bookies for copies are chosen: rack-aware, region-aware, random, the original's class name, or "
        "module:Class.",
    )
    min_racks_per_write_quorum: int = conf_key(
        "minNumRacksPerWriteQuorum", 2, minimum=1, doc="Racks over which the copies of an entry are spread."
    )
    enforce_min_racks_per_write_quorum: bool = conf_key(
        "enforceMinNumRacksPerWriteQuorum", False, doc="true: rather no copy than one on fewer racks."
    )

"""Metrics of the auditor under the original's names, read at scrape time.

Source: BookKeeper's AuditorStats, ReplicationStats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from quire.service.measuring.summaries import SIZE_BOUNDS, Times
from quire.service.metrics import Metrics

BYTE_BOUNDS: Final = tuple(float(1 << power) for power in range(10, 51, 2))
"""Inclusive upper bounds of the bytes of ledgers, 1 KB to 1 PB."""


@dataclass(slots=True)
class AuditorStats:
    """Metrics of the auditor.

    Counters grow over all times at which this process was the auditor; gauges are of its last check.
    """

    audits: Times = field(default_factory=Times)
    """Times in milliseconds, here and below."""
    audits_failed: int = 0
    index_creations: Times = field(default_factory=Times)
    publications: Times = field(default_factory=Times)
    ledger_checks: Times = field(default_factory=Times)
    ledger_checks_failed: int = 0
    placement_checks: Times = field(default_factory=Times)
    replicas_checks: Times = field(default_factory=Times)
    underreplicated: Times = field(default_factory=partial(Times, SIZE_BOUNDS))
    """Ledgers of each lost bookie."""
    underreplicated_bytes: Times = field(default_factory=partial(Times, BYTE_BOUNDS))
    fragments_per_ledger: Times = field(default_factory=partial(Times, SIZE_BOUNDS))
    bookies_per_ledger: Times = field(default_factory=partial(Times, SIZE_BOUNDS))
    ledgers_checked: int = 0
    audits_delayed: int = 0
    audits_cancelled: int = 0
    checks_skipped: int = 0
    returned_bookies: int = 0
    noted_ledgers: int = 0
    marked_now: int = 0
    not_adhering: int = 0
    softly_adhering: int = 0
    grace_elapsed: int = 0
    no_replica: int = 0
    below_ack_quorum: int = 0
    below_write_quorum: int = 0


def register(
    metrics: Metrics,
    stats: AuditorStats,
    attempts: Callable[[], int],
    is_auditor: Callable[[], bool],
    scope: str = "",
) -> None:
    """Register all metrics, and those of the election: number of votes, and whether this process is the auditor.
    `scope`: in front of the names; in a bookie's process the original has "replication_"."""
    failures: dict[str, Callable[[], int]] = {
        "AUDIT_BOOKIES_TIME": lambda: stats.audits_failed,
        "CHECK_ALL_LEDGERS_TIME": lambda: stats.ledger_checks_failed,
    }
    for name, doc, distribution in (
        ("AUDIT_BOOKIES_TIME", "Time to look for lost bookies, in milliseconds.", stats.audits),
        ("BOOKIE_TO_LEDGERS_MAP_CREATION_TIME", "Time to read all ledgers' metadata for it.", stats.index_creations),
        ("URL_PUBLISH_TIME_FOR_LOST_BOOKIE", "Time until the ledgers of lost bookies were marked.", stats.publications),
        ("CHECK_ALL_LEDGERS_TIME", "Time to check all ledgers, in milliseconds.", stats.ledger_checks),
        ("PLACEMENT_POLICY_CHECK_TIME", "Time to check the placement of all ledgers.", stats.placement_checks),
        ("REPLICAS_CHECK_TIME", "Time to check the replicas of all ledgers, in milliseconds.", stats.replicas_checks),
        ("NUM_UNDER_REPLICATED_LEDGERS", "Ledgers that a lost bookie had copies of.", stats.underreplicated),
        ("UNDER_REPLICATED_LEDGERS_TOTAL_SIZE", "Payload bytes of these.", stats.underreplicated_bytes),
        ("NUM_FRAGMENTS_PER_LEDGER", "Fragments of a ledger that was checked.", stats.fragments_per_ledger),
        ("NUM_BOOKIES_PER_LEDGER", "Bookies of a ledger that was checked.", stats.bookies_per_ledger),
    ):
        reading = partial(_read, distribution, failures.get(name))
        metrics.summary(f"{scope}auditor_{name}", doc, ("success",), reading)
    counters: tuple[tuple[str, str, Callable[[], float]], ...] = (
        ("election_attempts", "Votes made.", attempts),
        ("NUM_LEDGERS_CHECKED", "Ledgers checked.", lambda: stats.ledgers_checked),
        ("NUM_BOOKIE_AUDITS_DELAYED", "Audits delayed for a lost bookie.", lambda: stats.audits_delayed),
        ("NUM_DELAYED_BOOKIE_AUDITS_CANCELLED", "Bookies back within the delay.", lambda: stats.audits_cancelled),
        ("NUM_SKIPPING_CHECK_TASK_TIMES", "Checks skipped: a bookie was in its delay.", lambda: stats.checks_skipped),
        ("RETURNED_BOOKIES_CHECKED", "Returned bookies with all copies.", lambda: stats.returned_bookies),
        ("NOTED_LEDGERS_CHECKED", "Ledgers noted by writers.", lambda: stats.noted_ledgers),
        ("AUDITS_FAILED", "Audits that failed.", lambda: stats.audits_failed),
        (
            "LEDGER_CHECKS_FAILED",
            "Checks of all ledgers that failed.",
            lambda: stats.ledger_checks_failed,
        ),
    )
    for name, doc, read in counters:
        metrics.counter(f"{scope}auditor_{name}", doc, read)
    gauges: tuple[tuple[str, str, Callable[[], float]], ...] = (
        ("IS_AUDITOR", "1: this process is the auditor.", is_auditor),
        ("NUM_UNDER_REPLICATED_LEDGERS_GUAGE", "Ledgers marked, after the last audit.", lambda: stats.marked_now),
        ("NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY", "Ledgers placed wrongly.", lambda: stats.not_adhering),
        (
            "NUM_LEDGERS_SOFTLY_ADHERING_TO_PLACEMENT_POLICY",
            "Ledgers that meet the placement policy only softly.",
            lambda: stats.softly_adhering,
        ),
        (
            "NUM_UNDERREPLICATED_LEDGERS_ELAPSED_RECOVERY_GRACE_PERIOD",
            "Ledgers that lack copies for too long.",
            lambda: stats.grace_elapsed,
        ),
        (
            "NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY",
            "Ledgers with an entry that no bookie has.",
            lambda: stats.no_replica,
        ),
        (
            "NUM_LEDGERS_HAVING_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY",
            "Other ledgers with an entry of fewer copies than the ack quorum.",
            lambda: stats.below_ack_quorum,
        ),
        (
            "NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY",
            "Other ledgers with an entry of fewer copies than the write quorum.",
            lambda: stats.below_write_quorum,
        ),
    )
    for name, doc, read in gauges:
        metrics.gauge(f"{scope}auditor_{name}", doc, read)


def _read(good: Times, failed: Callable[[], int] | None) -> Iterable[tuple[Sequence[str], Times]]:
    if failed is None:
        return ((("true",), good),)
    bad = Times()
    bad.observe(0.0, failed())
    return (("true",), good), (("false",), bad)

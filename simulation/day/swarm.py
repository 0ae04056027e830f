"""Draws of a seed for a day of a few bookies: hosts, limits, lifetimes of ledgers, and the possible faults."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autorecovery.config import AutoRecoveryConfig
from bookie.config import BookieConfig
from simulation.cluster.swarm import QUORUMS, WEEK_S
from simulation.common import swarm
from simulation.ledger.swarm import LedgerSwarm

FLIPPED = "flipped entry"
LOST = "lost bookie"
HOUR_S = 3600
DAY_S = 24 * HOUR_S
LOOK_S = 120.0
"""Virtual seconds between two measurements of a disk with room; one second would be most of the work of a day."""
FAULTS = (
    *[kind for kind in swarm.FAULTS if kind not in (FLIPPED, "lost messages")],
    "away",
    LOST,
    "read-only",
    "full disk",
    "hung disk",
    "failed sync",
    "failed reads",
    "asked compaction",
    "crash amid compaction",
    "suspended compaction",
)
"""Kinds of faults. away: a bookie is down for up to an hour, so that its ledgers are copied to others; lost bookie: its
disk is gone for good; hung disk: no job ends for a minute; failed sync, failed reads: EIO; read-only, asked compaction,
suspended compaction: no faults, but done amid them. A history with scrubs may have flipped entries, too, instead of a
lost bookie."""
FAULTS_PER_SEED = range(10, len(FAULTS) + 1)
LOSSES_SHARE = 0.3
"""Share of the seeds in which bookies lose data that they copy back."""
FREQUENT = ("crash amid compaction", "full disk", "away", "read-only")
"""Faults that many histories should have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySwarm(LedgerSwarm):
    """Draws for one day."""

    recoverers: int
    faults_count: int
    gap_s: float
    """Mean pause of a writer between two ledgers."""
    lives_s: tuple[float, ...]
    """Mean lifetimes of ledgers to choose from."""
    kept: float
    """Fraction of the ledgers that are never deleted."""
    entry_log_size: int
    minor_interval_s: int
    major_interval_s: int
    compaction_rate: int
    """Entries per second, 0: no bound."""
    outstanding_max: int
    by_bytes: bool
    target_size: bool
    keep_log_map: bool
    force_when_full: bool
    journal_backups: int
    recovery_delay_s: int
    directories: int
    """Ledger directories of a bookie, all on one disk..."""
    journals: int
    """...and its journals."""
    losses: int = 0
    """Times that a bookie loses folders, or comes back with an older image of its disks."""
    scrub_interval_s: int
    """0: scrubs are only asked for."""
    scrub_rate: int
    usage_full: float
    """Used fraction above which a directory takes no entries..."""
    usage_warn: float
    """...and above which major compaction waits."""
    usage_low: float
    persist_status: bool
    """True if a restarted bookie stays as read-only as it was."""

    def bookie_config(self, name: str) -> BookieConfig:
        config = super(DaySwarm, self).bookie_config(name)  # the class is named because slots make it anew
        return replace(
            config,
            journal_size_max_mb=1,
            journal_backups_max=self.journal_backups,
            entry_log_size_max=self.entry_log_size,
            minor_threshold=0.2,
            minor_interval_s=self.minor_interval_s,
            major_interval_s=self.major_interval_s,
            compaction_rate_entries=self.compaction_rate,
            compaction_rate_bytes=1000 * self.compaction_rate,
            throttle_by_bytes=self.by_bytes,
            compaction_outstanding_max=self.outstanding_max,
            target_log_size=self.target_size,
            keep_log_map=self.keep_log_map,
            force_when_full=self.force_when_full,
            disk_reserve_mb=1,
            disk_check_interval_ms=int(1000 * LOOK_S),
            ledger_directories=tuple([f"/ledgers{number}" for number in range(self.directories)]),
            journal_directories=tuple([f"/journal{number}" for number in range(self.journals)]),
            persist_status=self.persist_status,
            scrub_interval_s=self.scrub_interval_s,
            scrub_rate=self.scrub_rate,
            disk_usage_threshold=self.usage_full,
            disk_usage_warn_threshold=self.usage_warn,
            disk_usage_low_water_mark=self.usage_low,
        )

    def recovery_config(self) -> AutoRecoveryConfig:
        """Return the configuration of auto recovery. Every copy of every entry is read by a check, made on request."""
        return AutoRecoveryConfig(
            lost_bookie_recovery_delay_s=self.recovery_delay_s,
            ledger_check_interval_s=WEEK_S,
            verification_percentage=100,
            open_ledger_grace_period_ms=3000,
            backoff_ms=500,
            failed_lock_release_ms=2000,
        )


def draw_losses(swarm: DaySwarm, rng: random.Random) -> DaySwarm:
    """Draw losses of data on top of the rest, for some seeds, and then nothing else that takes copies for good."""
    if rng.random() >= LOSSES_SHARE:
        return swarm
    settings = {"integrity_check": True, "integrity_stamp": True, "integrity_rate_mb": rng.choice((0, 1, 32))}
    return replace(
        swarm,
        losses=rng.randint(3, 6),
        faults=tuple([kind for kind in swarm.faults if kind not in (FLIPPED, LOST)]),
        bookie_settings=(*swarm.bookie_settings, *settings.items()),
    )


def draw(rng: random.Random, upkeep: random.Random) -> DaySwarm:
    """Draw the options of a seed; those of scrubs and thresholds from `upkeep`."""
    quorums = rng.choice(QUORUMS)
    faults: Sequence[str] = rng.sample(FAULTS, rng.choice(FAULTS_PER_SEED))
    faults = [*faults, *(kind for kind in FREQUENT if kind not in faults and rng.random() < 0.6)]
    scrub_interval_s = upkeep.choice((0, 4 * HOUR_S, 12 * HOUR_S))
    if scrub_interval_s and upkeep.random() < 0.7:
        faults = [*(kind for kind in faults if kind != LOST), FLIPPED]
    usage_full = upkeep.choice((0.5, 0.8, 0.95))
    minor_s = rng.choice((1200, HOUR_S))
    gc_wait_s = rng.choice((120, 600, 1200))
    return DaySwarm(
        bookies=min(6, max(3, quorums[0] + rng.choice((1, 1, 2)))),
        clients=2,
        recoverers=rng.choice((1, 2)),
        quorums=(quorums,),
        sizes=rng.choice(((200, 1000), (100, 3000), (20, 500, 8000))),
        runs=rng.choice(((1, 3), (2, 8))),
        window=rng.choice((10, 50)),
        entries=rng.choice(((1, 20), (10, 30), (1, 60))),
        pace_s=rng.choice((0.02, 1.0, 20.0)),
        protocols=rng.choice((("v2",), ("v3",), ("v2", "v3"))),
        group_wait_ms=0,
        flush_interval_ms=1000 * rng.choice((60, 300)),
        gc_wait_ms=1000 * gc_wait_s,
        add_timeout_s=rng.choice((1.0, 5.0)),
        read_timeout_s=rng.choice((1.0, 5.0)),
        speculative_s=rng.choice((0.2, 2.0)),
        session_timeout_s=rng.choice((3.0, 10.0)),
        explicit_lac_s=0.0,
        delay_ensemble_change=rng.random() < 0.2,
        late=rng.choice((0.0, 0.05)),
        latency_max_s=0.5,
        down_max=1 if quorums[2] == quorums[0] else rng.randint(1, 2),
        overlap=rng.randint(1, 3),
        calm_s=0.0,  # set by the number of faults
        faults=tuple(sorted(faults)),
        ambush=0.0,
        faults_count=rng.choice((20, 30, 40)),
        gap_s=rng.choice((1800.0, 3000.0)),
        lives_s=rng.choice(((600.0,), (1800.0, 4 * HOUR_S), (HOUR_S, 8 * HOUR_S))),
        kept=rng.choice((0.05, 0.2)),
        entry_log_size=rng.choice((12_000, 24_000, 40_000)),
        minor_interval_s=max(minor_s, gc_wait_s),
        major_interval_s=rng.choice((2, 4)) * HOUR_S,
        compaction_rate=rng.choice((0, 10, 1000)),
        outstanding_max=rng.choice((1, 10, 100_000)),
        by_bytes=rng.random() < 0.3,
        target_size=rng.random() < 0.2,
        keep_log_map=rng.random() < 0.4,
        force_when_full=rng.random() < 0.4,
        journal_backups=rng.choice((0, 1)),
        recovery_delay_s=rng.choice((0, 60, 600)),
        directories=rng.choice((1, 1, 2)),
        journals=rng.choice((1, 1, 2)),
        persist_status=rng.random() < 0.3,
        scrub_interval_s=scrub_interval_s,
        scrub_rate=upkeep.choice((100, 1000)),
        usage_full=usage_full,
        usage_warn=usage_full - upkeep.choice((0.0, 0.2)),
        usage_low=usage_full - upkeep.choice((0.0, 0.1)),
    )

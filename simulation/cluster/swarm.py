"""Draws of a seed for a history of a whole cluster: hosts, limits, quorums, and the possible faults."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autorecovery.config import AutoRecoveryConfig
from quire.servers.broker.config import BROKER, BrokerConfig
from simulation.common import swarm

CLUSTER = "sim"
BROKER_PORT = 6650
WEEK_S = 604_800
FAULTS = (
    *swarm.FAULTS,
    "lost bookie",
    "sleeping owner",
    "late owner",
    "failover",
    "client crash",
    "unload",
    "split",
)
"""Kinds of faults. lost bookie: its disk is gone for good; sleeping owner: a broker stops for longer than its session
lasts, goes on, and finds its topics with others; late owner: it loses its session while what it sends to bookies lags;
unload, split: no faults, but done amid them."""
FAULTS_PER_SEED = range(6, len(FAULTS) + 1)
FREQUENT = ("lost bookie", "sleeping owner", "late owner", "unload")
"""Faults that many histories should have."""

QUORUMS = ((2, 2, 2), (3, 2, 2), (3, 3, 2), (3, 3, 2), (3, 3, 3), (4, 3, 2))
"""(ensemble, write quorum, ack quorum): with each an entry outlives one disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSwarm(swarm.Swarm):
    """Draws for one history of a cluster."""

    brokers: int
    recoverers: int
    topics: int
    bundles: int
    quorums: tuple[int, int, int]
    windows: tuple[int, ...]
    """Messages that a producer has unanswered at most, to choose from."""
    pace_s: float
    """A producer's pause between sends is up to this."""
    trimmed: bool
    """Ledgers go as soon as every subscription has consumed them."""
    ledger_entries_max: int
    cursor_ledger_entries_max: int
    cursor_node_ranges_max: int
    cache_mb: int
    bookie_timeout_s: int
    balanced: bool
    """True if brokers move bundles by themselves."""
    recovery_delay_s: int
    begin_anew: bool
    """True if at the end all brokers are killed during an outage of the metadata service, which returns with their
    sessions alive."""
    grace_ms: int
    """Time that workers give the writer of an open ledger."""

    def broker_config(self, name: str, more: Mapping[str, object] | None = None) -> BrokerConfig:
        """Return the configuration of a broker; `more`: further keys."""
        ensemble_size, write_quorum, ack_quorum = self.quorums
        retention = 0 if self.trimmed else -1
        return BROKER.build(
            {
                "clusterName": CLUSTER,
                "bindAddress": name,
                "advertisedAddress": name,
                "brokerServicePort": BROKER_PORT,
                "managedLedgerDefaultEnsembleSize": ensemble_size,
                "managedLedgerDefaultWriteQuorum": write_quorum,
                "managedLedgerDefaultAckQuorum": ack_quorum,
                "bookkeeperClientTimeoutInSeconds": self.bookie_timeout_s,
                "bookkeeperClientHealthCheckQuarantineTimeInSeconds": 2,
                "managedLedgerMaxEntriesPerLedger": self.ledger_entries_max,
                "managedLedgerMinLedgerRolloverTimeMinutes": 0,
                "defaultRetentionTimeInMinutes": retention,
                "defaultRetentionSizeInMB": retention,
                "retentionCheckIntervalInSeconds": 5,
                "managedLedgerCacheSizeMB": self.cache_mb,
                "managedLedgerCursorMaxEntriesPerLedger": self.cursor_ledger_entries_max,
                "managedLedgerMaxUnackedRangesToPersistInMetadataStore": self.cursor_node_ranges_max,
                "activeConsumerFailoverDelayTimeMillis": 10,
                "loadBalancerEnabled": self.balanced,
                "loadBalancerSheddingGracePeriodMinutes": 0,
                "loadBalancerNamespaceBundleMaxTopics": 2,
                "loadBalancerNamespaceMaximumBundles": 8,
                "brokerShutdownTimeoutMs": 60_000,
                **(more or {}),
            }
        )

    def recovery_config(self) -> AutoRecoveryConfig:
        """Return the configuration of recovery. Every copy of every entry is read by a check, made on request."""
        return AutoRecoveryConfig(
            lost_bookie_recovery_delay_s=self.recovery_delay_s,
            ledger_check_interval_s=WEEK_S,
            verification_percentage=100,
            open_ledger_grace_period_ms=self.grace_ms,
            backoff_ms=500,
            failed_lock_release_ms=2000,
        )


def draw(rng: random.Random) -> ClusterSwarm:
    """The options of a seed."""
    quorums = rng.choice(QUORUMS)
    faults: Sequence[str] = rng.sample(FAULTS, rng.choice(FAULTS_PER_SEED))
    faults = [*faults, *(kind for kind in FREQUENT if kind not in faults and rng.random() < 0.4)]
    if "lost bookie" in faults and "flipped entry" in faults:
        faults.remove(rng.choice(("lost bookie", "flipped entry")))
    return ClusterSwarm(
        brokers=rng.choice((2, 2, 3)),
        bookies=min(5, max(3, quorums[0] + rng.choice((1, 1, 2)))),
        recoverers=rng.choice((1, 2, 2)),
        topics=rng.choice((2, 3)),
        bundles=rng.choice((1, 2, 4)),
        quorums=quorums,
        sizes=rng.choice(((0,), (0, 0, 200), (0, 0, 0, 900, 20_000))),
        windows=rng.choice(((4,), (4, 16), (16, 40))),
        pace_s=rng.choice((0.02, 0.1)),
        trimmed=rng.random() < 0.4,
        ledger_entries_max=rng.choice((10, 40, 50_000)),
        cursor_ledger_entries_max=rng.choice((5, 30, 50_000)),
        cursor_node_ranges_max=rng.choice((0, 1000)),
        cache_mb=rng.choice((0, 1, 16)),
        bookie_timeout_s=rng.choice((1, 3)),
        balanced=rng.random() < 0.3,
        group_wait_ms=rng.choice((0, 0, 1)),
        flush_interval_ms=rng.choice((200, 1000, 5000)),
        gc_wait_ms=rng.choice((2000, 10_000, 300_000)),
        recovery_delay_s=rng.choice((0, 0, 2)),
        grace_ms=rng.choice((500, 3000)),
        session_timeout_s=rng.choice((1.0, 3.0)),
        late=rng.choice((0.0, 0.05, 0.3)),
        latency_max_s=rng.choice((0.05, 0.5)),
        down_max=1 if quorums[2] == quorums[0] else rng.randint(1, 2),
        overlap=rng.randint(1, 3),
        calm_s=rng.choice((0.3, 1.0, 2.0)),
        faults=tuple(sorted(faults)),
        begin_anew=rng.random() < 0.4,
    )

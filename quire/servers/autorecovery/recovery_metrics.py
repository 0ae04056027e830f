"""Metrics of auto recovery in a process: its worker's, its auditor's, and those of the election."""

from __future__ import annotations

from typing import Final

from autorecovery.auditing import metrics as auditor_metrics
from autorecovery.copying import metrics as worker_metrics
from autorecovery.service import RecoveryStats
from quire.ledger.client_metrics import register_ledger_client
from quire.service.metrics import Metrics

CLIENT_SCOPE: Final = "bookkeeper_client_bookkeeper_client"
"""Beginning of the names of the ledger client: its scope in BookKeeper's AutoRecoveryMain, and its own."""


def register_recovery(metrics: Metrics, stats: RecoveryStats, scope: str = "") -> None:
    """Register all metrics. `scope`: in front of the names; in a bookie's process the original has "replication_"."""

    def attempts() -> int:
        return 0 if stats.election is None else stats.election.attempts

    def is_auditor() -> bool:
        return stats.election is not None and stats.election.is_auditor

    worker_metrics.register(metrics, stats.worker, scope)
    register_ledger_client(metrics, lambda: stats.client, f"{scope}{CLIENT_SCOPE}")
    auditor_metrics.register(metrics, stats.auditor, attempts, is_auditor, scope)

"""Metrics of a broker's ledger client, as Pulsar's brokers have them with bookkeeperClientExposeStatsToPrometheus."""

from __future__ import annotations

from typing import Final, Protocol

from broker.console.cluster_ports import LedgerAccess
from quire.ledger.client_metrics import register_ledger_client
from quire.ledger.client_stats import ClientStats
from quire.service.metrics import Metrics

CLIENT_SCOPE: Final = "pulsar_managedLedger_client_bookkeeper_client"
"""Beginning of the names. Source: Pulsar's ManagedLedgerClientFactory, whose scope BookKeeper's own follows."""


class CountedLedgers(LedgerAccess, Protocol):
    """Ledger client of a server, with what it counts."""

    @property
    def stats(self) -> ClientStats: ...


def register_broker_client(metrics: Metrics, ledgers: CountedLedgers, cluster: str) -> None:
    """Register all metrics of the client."""
    register_ledger_client(metrics, lambda: ledgers.stats, CLIENT_SCOPE, cluster=cluster)

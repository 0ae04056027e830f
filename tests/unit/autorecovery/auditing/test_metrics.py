"""The auditor's metrics."""

from __future__ import annotations

from autorecovery.auditing.metrics import AuditorStats, register
from quire.service.metrics import Metrics


async def test_what_is_counted_is_exposed_under_the_originals_names() -> None:
    metrics, stats = Metrics(), AuditorStats(audits_delayed=3, no_replica=2, audits_failed=1)
    stats.audits.observe(7)
    stats.underreplicated.observe(5)
    register(metrics, stats, lambda: 4, lambda: True)
    text = metrics.exposition().decode()
    for line in (
        'auditor_NUM_UNDER_REPLICATED_LEDGERS_count{success="true"} 1.0',
        'auditor_NUM_UNDER_REPLICATED_LEDGERS_sum{success="true"} 5.0',
        'auditor_AUDIT_BOOKIES_TIME_sum{success="true"} 7.0',
        'auditor_AUDIT_BOOKIES_TIME_count{success="false"} 1.0',
        "auditor_NUM_BOOKIE_AUDITS_DELAYED 3.0",
        "auditor_NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY 2.0",
        "auditor_election_attempts 4.0",
    ):
        assert line in text.splitlines()

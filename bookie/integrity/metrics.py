"""Metrics of limbo and of the check that ends it."""

from __future__ import annotations

from bookie.bookie import Bookie
from bookie.integrity.progress import IntegrityProgress
from quire.service.metrics import Metrics


def register_integrity(metrics: Metrics, bookie: Bookie, progress: IntegrityProgress) -> None:
    """Register the number of ledgers in limbo, and what the data integrity check has done."""
    metrics.gauge(
        "quire_bookie_limbo_ledgers",
        "Ledgers of which entries may have been lost here: an entry that is not here is unknown, not absent.",
        lambda: len(bookie.storage.limbo),
    )
    metrics.counter(
        "quire_bookie_integrity_ledgers", "Ledgers that left limbo with all their entries.", lambda: progress.ledgers
    )
    metrics.counter(
        "quire_bookie_integrity_entries",
        "Entries copied back from other bookies after a loss.",
        lambda: progress.entries,
    )
    metrics.counter("quire_bookie_integrity_bytes", "Bytes of these entries.", lambda: progress.bytes)
    metrics.counter("quire_bookie_integrity_rounds", "Rounds over all ledgers in limbo.", lambda: progress.rounds)

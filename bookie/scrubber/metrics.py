"""Metrics of the scrubber."""

from __future__ import annotations

from bookie.scrubber.scrubber import Scrubber
from quire.service.metrics import Metrics


def register_scrubber(metrics: Metrics, scrubber: Scrubber) -> None:
    """Register what the scrubber has read, found and healed."""
    counts, records = scrubber.counts, scrubber.records
    metrics.counter("quire_bookie_scrub_rounds", "Scrubs that came to their end.", lambda: counts.rounds)
    metrics.counter("quire_bookie_scrub_entries", "Entries that scrubs have read.", lambda: counts.entries)
    metrics.counter("quire_bookie_scrub_bytes", "Bytes of the entries that scrubs have read.", lambda: counts.bytes)
    metrics.counter(
        "quire_bookie_scrub_unverified",
        "Entries that scrubs have read whose digest the bookie does not know, so that only the index was checked.",
        lambda: counts.unverified,
    )
    metrics.counter(
        "quire_bookie_scrub_damaged_entries", "Damaged entries that scrubs have found.", lambda: counts.damaged
    )
    metrics.counter(
        "quire_bookie_scrub_healed_entries",
        "Damaged entries that were replaced by copies from other bookies.",
        lambda: counts.healed,
    )
    metrics.counter(
        "quire_bookie_scrub_entries_without_row",
        "Entries that scrubs have found in an entry log, but not in the index.",
        lambda: counts.strays,
    )
    metrics.counter(
        "quire_bookie_scrub_rows_written",
        "Entries without a row in the index that were intact, and have one again.",
        lambda: counts.rows_written,
    )
    metrics.gauge(
        "quire_bookie_scrub_damaged_ledgers",
        "Ledgers with damaged entries that are not healed.",
        lambda: sum([len(record.damages) for record in records]),
    )
    metrics.gauge(
        "quire_bookie_scrub_damaged_logs",
        "Entry logs with a damaged header or ledgers map.",
        lambda: sum([len(record.damaged_logs) for record in records]),
    )
    metrics.gauge(
        "quire_bookie_scrub_last_round_seconds",
        "Time at which the last scrub of all directories ended, in seconds since 1970; 0: never.",
        lambda: min([record.round_ended_ms for record in records]) / 1000,
    )

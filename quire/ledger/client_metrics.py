"""Metrics of a ledger client under BookKeeper's names, below the scope of the program that uses the client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from quire.ledger.client_stats import ClientStats
from quire.service.measuring.outcomes import Outcomes
from quire.service.measuring.summaries import Times
from quire.service.metrics import Metrics

_OUTCOMES: Final[Sequence[tuple[str, str, Callable[[ClientStats], Outcomes]]]] = (
    ("LEDGER_CREATE", "Milliseconds of creations of ledgers.", lambda stats: stats.creates),
    ("LEDGER_OPEN", "Milliseconds in which ledgers are opened for reading.", lambda stats: stats.opens),
    ("LEDGER_DELETE", "Milliseconds of deletions of ledgers.", lambda stats: stats.deletes),
    ("LEDGER_RECOVER", "Milliseconds of recoveries of ledgers.", lambda stats: stats.recoveries),
    (
        "ADD_ENTRY",
        "Milliseconds from the append of an entry until it is confirmed; false: it never will be.",
        lambda stats: stats.adds,
    ),
    ("READ_ENTRY", "Milliseconds of reads of one or more entries.", lambda stats: stats.reads),
    ("READ_LAC", "Milliseconds of questions for the last add confirmed.", lambda stats: stats.lac_reads),
    (
        "READ_LAST_CONFIRMED_AND_ENTRY",
        "Milliseconds of long polls for the next entry of an open ledger.",
        lambda stats: stats.long_polls,
    ),
    ("WRITE_LAC", "Milliseconds in which explicit LACs are stored.", lambda stats: stats.explicit_lacs),
    ("FORCE", "Milliseconds of forces of ledgers.", lambda stats: stats.forces),
    (
        "bookie_watcher_NEW_ENSEMBLE_TIME",
        "Milliseconds in which the bookies of a new ledger are chosen.",
        lambda stats: stats.ensembles,
    ),
    (
        "bookie_watcher_REPLACE_BOOKIE_TIME",
        "Milliseconds in which replacements of bookies are chosen.",
        lambda stats: stats.replacements,
    ),
)
_NUMBERS: Final[Sequence[tuple[str, str, Callable[[ClientStats], Times]]]] = (
    ("LEDGER_RECOVER_READ_ENTRIES", "Entries that a recovery reads.", lambda stats: stats.recovered_reads),
    ("LEDGER_RECOVER_ADD_ENTRIES", "Entries that a recovery writes again.", lambda stats: stats.recovered_adds),
    (
        "READ_REQUESTS_REORDERED",
        "Reads that ask bookies in another order than that of the write set, each as 1.",
        lambda stats: stats.reordered,
    ),
)
_COUNTS: Final[Sequence[tuple[str, str, Callable[[ClientStats], int]]]] = (
    ("ADD_ENTRY_UR", "Confirmed entries that a bookie failed to store.", lambda stats: stats.adds_lacking),
    ("READ_ENTRY_DM", "Answers with a damaged entry.", lambda stats: stats.digest_mismatches),
    (
        "SPECULATIVE_READ_COUNT",
        "Entries asked for at another bookie because the first one takes long.",
        lambda stats: stats.speculative_reads,
    ),
    ("LAC_UPDATE_HITS", "Last adds confirmed, in answers, that were news.", lambda stats: stats.lacs_new),
    ("LAC_UPDATE_MISSES", "Last adds confirmed, in answers, that were known.", lambda stats: stats.lacs_known),
    ("NUM_ENSEMBLE_CHANGE", "Ensemble changes of writers.", lambda stats: stats.ensemble_changes),
)


def register_ledger_client(
    metrics: Metrics, stats: Callable[[], ClientStats], scope: str, *, cluster: str | None = None
) -> None:
    """Register all metrics, and have adds timed from the first scrape on.

    Args:
        metrics: Metrics of the server.
        stats: Returns those of the client, which may be another one after a while.
        scope: Beginning of the names, as the original's program has it.
        cluster: Value of the label `cluster`; None: there is no such label.
    """
    label_names, marks = (("cluster",), (cluster,)) if cluster is not None else ((), ())

    def outcomes(of: Callable[[ClientStats], Outcomes]) -> Iterable[tuple[Sequence[str], Times]]:
        found = stats()
        found.times_adds = True
        return of(found).labelled(*marks)

    def numbers(of: Callable[[ClientStats], Times]) -> Iterable[tuple[Sequence[str], Times]]:
        return [(("true", *marks), of(stats()))]

    def count(of: Callable[[ClientStats], int]) -> Iterable[tuple[Sequence[str], float]]:
        return [(marks, of(stats()))]

    for name, doc, outcomes_of in _OUTCOMES:
        metrics.summary(f"{scope}_{name}", doc, ("success", *label_names), partial(outcomes, outcomes_of))
    for name, doc, times_of in _NUMBERS:
        metrics.summary(f"{scope}_{name}", doc, ("success", *label_names), partial(numbers, times_of))
    for name, doc, count_of in _COUNTS:
        metrics.family("counter", f"{scope}_{name}", doc, label_names, partial(count, count_of))
    metrics.family(
        "gauge",
        f"{scope}_NUM_PENDING_ADD",
        "Entries that are not confirmed yet.",
        label_names,
        partial(count, lambda found: found.adds_pending),
    )
    metrics.family(
        "counter",
        f"{scope}_LEDGER_ENSEMBLE_BOOKIE_DISTRIBUTION",
        "New ledgers, by each bookie of their first ensemble.",
        ("bookie", *label_names),
        lambda: [((bookie_id, *marks), count) for bookie_id, count in sorted(stats().members.items())],
    )

"""Counts and times of a ledger client, under the names of BookKeeper's client in `client_metrics`.

Most operations are rare, or deal with many entries at once. Only adds are not: their times are taken by run, and only
once something exposes them.

Source: BookKeeper's BookKeeperClientStats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import trio

from quire.ledger.writing.pending_runs import PendingRun
from quire.service.measuring.outcomes import Outcomes
from quire.service.measuring.summaries import SIZE_BOUNDS, Times


class ClientStats:
    """Counts and times of one client. Times are in milliseconds."""

    def __init__(self) -> None:
        self.times_adds = False
        """True from the moment on at which something exposes the times of adds."""
        self.creates = Outcomes()
        """Creations of ledgers; below, openings, deletions, and recoveries, which are parts of openings."""
        self.opens = Outcomes()
        self.deletes = Outcomes()
        self.recoveries = Outcomes()
        self.recovered_reads = Times(SIZE_BOUNDS)
        """Entries that each recovery read; below, that it wrote again."""
        self.recovered_adds = Times(SIZE_BOUNDS)
        self.adds = Outcomes()
        """From the append of an entry to its confirmation."""
        self.adds_pending = 0
        """Entries in runs that are not confirmed."""
        self.adds_lacking = 0
        """Confirmed entries that a bookie of their write set failed to store."""
        self.forces = Outcomes()
        self.explicit_lacs = Outcomes()
        self.reads = Outcomes()
        """Reads of one or more entries; one that the client repeats counts once."""
        self.digest_mismatches = 0
        """Answers to reads with an entry that is damaged."""
        self.reordered = Times(SIZE_BOUNDS)
        """One for each read whose bookies are asked in another order than that of the write set."""
        self.speculative_reads = 0
        """Entries asked for at another bookie because the first one takes long."""
        self.lac_reads = Outcomes()
        self.long_polls = Outcomes()
        self.lacs_new = 0
        """LACs in answers that were news; below, that were not."""
        self.lacs_known = 0
        self.ensemble_changes = 0
        self.ensembles = Outcomes()
        """Choices of the bookies of a new ledger; below, of replacements."""
        self.replacements = Outcomes()
        self.members: Counter[str] = Counter()
        """New ledgers by bookie of their ensemble."""

    def pushed(self, run: PendingRun) -> None:
        """Record that a run was sent."""
        self.adds_pending += len(run.sizes)
        if self.times_adds:
            run.pushed_at = trio.current_time()

    def ended(self, runs: Sequence[PendingRun], *, good: bool) -> None:
        """Record that runs were confirmed as a whole, or never will be."""
        times = self.adds.good if good else self.adds.bad
        now = trio.current_time() if self.times_adds else 0.0
        for run in runs:
            count = len(run.sizes)
            self.adds_pending -= count
            if run.pushed_at >= 0:
                times.observe(1000 * (now - run.pushed_at), count)

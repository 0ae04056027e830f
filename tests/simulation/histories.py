"""Histories of one test session: all run in the same two processes, and each once for all tests that use it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simulation.common.sweep import Outcome, Work, Workers

JOBS = 2


class Histories:
    """Outcomes of histories; one that is not known yet is run."""

    def __init__(self, processes: Workers) -> None:
        self._processes = processes
        self._known: dict[Work, Outcome] = {}

    def outcomes(self, work: Sequence[Work]) -> list[Outcome]:
        missing = [each for each in dict.fromkeys(work) if each not in self._known]
        self._known |= zip(missing, self._processes.run(missing), strict=True)
        return [self._known[each] for each in work]

    def of(self, history: str, seeds: Iterable[int]) -> list[Outcome]:
        """Return the outcomes of these seeds of one history."""
        return self.outcomes([Work(history, seed) for seed in seeds])

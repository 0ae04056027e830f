"""Many histories, over several processes; each outcome is a value, so that it can cross from one process to another."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing.pool import Pool
from typing import Any, Final, NamedTuple, Protocol

import trio

from quire.service import log
from simulation.cluster.history import run_cluster_history, run_living_history, run_transacting_history
from simulation.common.bugs import plant
from simulation.common.checkers import ViolationError
from simulation.day.history import run_day_history
from simulation.ledger.checkers import LedgerViolationError
from simulation.ledger.history import (
    run_housekeeping_history,
    run_ledger_history,
    run_losing_history,
    run_spread_history,
)
from simulation.standalone.client_history import run_client_history
from simulation.standalone.compaction_history import run_compaction_history
from simulation.standalone.explain_history import run_explain_history
from simulation.standalone.fencing_history import run_fencing_history
from simulation.standalone.history import run_standalone_history
from simulation.standalone.life_history import run_life_history
from simulation.standalone.limits_history import run_limits_history
from simulation.standalone.reuse_history import run_reuse_history
from simulation.standalone.transaction_history import run_transaction_history
from simulation.tiers.history import run_offload_history


class Summary(Protocol):
    """Summary of a history: its `str` is one line."""

    @property
    def digest(self) -> str: ...


HISTORIES: dict[str, Callable[..., Summary]] = {
    "standalone": run_standalone_history,
    "fencing": run_fencing_history,
    "reuse": run_reuse_history,
    "compaction": run_compaction_history,
    "transactions": run_transaction_history,
    "client": run_client_history,
    "explain": run_explain_history,
    "limits": run_limits_history,
    "life": run_life_history,
    "offload": run_offload_history,
    "ledger": run_ledger_history,
    "spread": run_spread_history,
    "losing": run_losing_history,
    "housekeeping": run_housekeeping_history,
    "day": run_day_history,
    "cluster": run_cluster_history,
    "transacting": run_transacting_history,
    "living": run_living_history,
}
"""Histories by name: `run(seed, *, lines=None, steps=False)`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one history."""

    history: str
    seed: int
    line: str
    """Summary in one line."""
    digest: str = ""
    violation: str = ""
    """Name of the violated invariant, or of the exception that ended the history."""
    details: str = ""
    """The traceback, if anything but an invariant failed."""
    faults: tuple[tuple[str, int], ...] = ()
    """Faults by kind, where the history counts them."""
    place: tuple[int, int] | None = None
    """Ledger and entry (-1: all of it) of the violation, if it is about one."""

    @property
    def ok(self) -> bool:
        return not self.violation


def run_one(history: str, seed: int, *, lines: list[str] | None = None, steps: bool = False, **more: Any) -> Outcome:
    """Run a history and return its outcome, whatever that is.

    `lines` gets the trace, with every step of every task if `steps`; `more` are further arguments of this history."""
    try:
        summary = HISTORIES[history](seed, lines=lines, steps=steps, **more)
    except LedgerViolationError as error:
        place = (error.ledger_id, error.entry_id)
        return Outcome(history, seed, f"seed {seed}: {error}", violation=error.name, place=place)
    except ViolationError as error:
        return Outcome(history, seed, f"seed {seed}: {error}", violation=error.name)
    except trio.TooSlowError:
        line = f"seed {seed}: Liveness: the healed system makes no progress"
        return Outcome(history, seed, line, violation="Liveness", details=traceback.format_exc())
    except Exception as error:
        line = f"seed {seed}: {type(error).__name__}: {error}"
        return Outcome(history, seed, line, violation=type(error).__name__, details=traceback.format_exc())
    return Outcome(history, seed, str(summary), digest=summary.digest, faults=getattr(summary, "faults", ()))


FULL_DISKS_APART: Final = ("ledger", "cluster")
"""Histories with full disks only on request, so that older seeds keep their histories."""


class Work(NamedTuple):
    """One history to run, with a planted bug if one is named; with full disks, where the history has them
    separately."""

    history: str
    seed: int
    bug: str = ""
    full_disks: bool = False


@dataclass(frozen=True, slots=True)
class Workers:
    """Separate processes that run histories."""

    _pool: Pool

    def run(self, work: Iterable[Work]) -> Iterator[Outcome]:
        """Run these; outcomes in the same order."""
        return self._pool.imap(_run, work)


@contextmanager
def workers(jobs: int) -> Iterator[Workers]:
    """Start `jobs` processes; they end with the block."""
    # Not forked from this process: a history must not see what it did before. They are forked from one that has only
    # imported the histories, which takes 2 s of CPU.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with context.Pool(jobs, log.configure, ("critical",)) as pool:
        yield Workers(pool)


def run_all(work: Sequence[Work], *, jobs: int) -> Iterator[Outcome]:
    """Run these in `jobs` separate processes; outcomes in the same order."""
    with workers(max(1, min(jobs, len(work)))) as processes:
        yield from processes.run(work)


def sweep(
    histories: Iterable[str], seeds: Iterable[int], *, jobs: int = 1, bug: str = "", full_disks: bool = False
) -> Iterator[Outcome]:
    """Run each history for each seed; see `run_all`."""
    return run_all([Work(history, seed, bug, full_disks) for history in histories for seed in seeds], jobs=jobs)


def _run(work: Work) -> Outcome:
    with plant(work.bug) if work.bug else nullcontext():
        return run_one(work.history, work.seed, **with_full_disks(work.history, work.full_disks))


def with_full_disks(history: str, wanted: bool) -> dict[str, Any]:
    """Return further arguments of `run_one`."""
    return {"full_disks": True} if wanted and history in FULL_DISKS_APART else {}

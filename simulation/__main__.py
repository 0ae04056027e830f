"""Run histories, or print the events of one.

    python -m simulation --seeds 0..199              all histories, two processes, a line for each
    python -m simulation --history fencing --seed 7  one seed: every event, with the server's log
    python -m simulation --history ledger --seed 7 --explain    the causes: faults, and events of ledgers and entries
    python -m simulation --history ledger --seeds 0..999 --histogram faults.png
    python -m simulation --seeds 0..199 --plant ack-before-fsync

Exit code 0: no invariant was violated. 1: one was; the last lines have the command that replays it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from quire.service import log
from quire.service.programs.command_line import one_of, run_command
from simulation.common.bugs import BUGS, plant
from simulation.common.histogram import Histogram
from simulation.common.sweep import HISTORIES, Outcome, run_one, sweep, with_full_disks
from simulation.common.tale import Tale

ALL: Final = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Values of the command line."""

    seeds: range
    seed: int | None
    steps: bool
    explain: bool
    histogram: Path | None
    history: str
    jobs: int
    plant: str
    full_disks: bool
    digests: Path | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    return run_command(simulate, arguments, name="python -m simulation", text=__doc__)


def simulate(
    seeds: Annotated[str, typer.Option(metavar="FIRST..LAST", help="Range of seeds.")] = "0..199",
    seed: Annotated[int | None, typer.Option(help="Print the events of this seed.")] = None,
    steps: Annotated[bool, typer.Option("--steps", help="With --seed: print every step of every task too.")] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="With --seed, for the histories ledger and cluster: print only the causes of the violation.",
        ),
    ] = False,
    histogram: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a picture of the number of faults of each kind.")
    ] = None,
    history: Annotated[str, typer.Option(help=f"One of {', '.join(HISTORIES)}, or all.")] = ALL,
    jobs: Annotated[int, typer.Option(help="Number of processes.")] = 2,
    plant: Annotated[
        str, typer.Option(metavar="BUG", help=f"Put this bug into the server: {', '.join(sorted(BUGS))}.")
    ] = "",
    full_disks: Annotated[
        bool,
        typer.Option("--full-disks", help="In the histories ledger and cluster, disks of bookies are full at times."),
    ] = False,
    digests: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write history, seed and digest of each run to FILE.")
    ] = None,
) -> int:
    wanted = Wanted(
        seeds=_seeds(seeds),
        seed=seed,
        steps=steps,
        explain=explain,
        histogram=histogram,
        history=one_of("--history", history, [*HISTORIES, ALL]),
        jobs=jobs,
        plant=plant and one_of("--plant", plant, sorted(BUGS)),
        full_disks=full_disks,
        digests=digests,
    )
    return _sweep(wanted) if seed is None else _tell(wanted, seed)


def _sweep(options: Wanted) -> int:
    """Run the seeds of all histories that are wanted; return 1 if one failed."""
    histories = list(HISTORIES) if options.history == ALL else [options.history]
    failed: list[Outcome] = []
    histogram = Histogram()
    total = len(histories) * len(options.seeds)
    with open(options.digests, "w", encoding="ascii") if options.digests else nullcontext() as digests:
        for number, outcome in enumerate(
            sweep(histories, options.seeds, jobs=options.jobs, bug=options.plant, full_disks=options.full_disks),
            1,
        ):
            _progress("")
            if not outcome.ok:
                failed.append(outcome)
            histogram.add(outcome.faults)
            print(f"{outcome.history} {'' if outcome.ok else 'FAILED '}{outcome.line}")
            if digests is not None:
                digests.write(f"{outcome.history} {outcome.seed} {outcome.digest or outcome.violation}\n")
            _progress(f"{number} of {total}, {len(failed)} failed")
    _progress("")
    if histogram.histories:
        print(histogram.text())
        if options.histogram is not None:
            histogram.draw(options.histogram)
    print(f"{total} histories, {len(failed)} failed")
    for outcome in failed:
        print(f"replay: python -m simulation --history {outcome.history} --seed {outcome.seed}{_planted(options)}")
    return 1 if failed else 0


def _tell(options: Wanted, seed: int) -> int:
    """Print the history of one seed: events as they happen, and the server's log lines."""
    if options.explain:
        return _explain(options, seed)
    history = "standalone" if options.history == ALL else options.history
    log.configure("info", sys.stdout)
    lines = _Printed()
    with plant(options.plant) if options.plant else nullcontext():
        outcome = run_one(
            history, seed, lines=lines, steps=options.steps, **with_full_disks(history, options.full_disks)
        )
    print(outcome.details, end="")
    print(f"{history} {'' if outcome.ok else 'FAILED '}{outcome.line}")
    return 0 if outcome.ok else 1


def _explain(options: Wanted, seed: int) -> int:
    """Print the events that led to the violation of a history of ledgers or of a cluster.

    These are the faults, and the events of the entry concerned; without a violation of that kind, all events."""
    history = "cluster" if options.history == "cluster" else "ledger"
    log.configure("critical")
    tale = Tale()
    with plant(options.plant) if options.plant else nullcontext():
        outcome = run_one(history, seed, tale=tale, **with_full_disks(history, options.full_disks))
    for event in tale.all() if outcome.place is None else tale.about(*outcome.place):
        print(event)
    print(outcome.details, end="")
    print(f"{history} {'' if outcome.ok else 'FAILED '}{outcome.line}")
    return 0 if outcome.ok else 1


class _Printed(list[str]):
    """A list that prints its items instead of keeping them."""

    def append(self, line: str) -> None:
        print(line)


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _planted(options: Wanted) -> str:
    return (f" --plant {options.plant}" if options.plant else "") + (" --full-disks" if options.full_disks else "")


def _seeds(text: str) -> range:
    """Return a range of seeds. Raises typer.BadParameter."""
    first, _, last = text.partition("..")
    try:
        return range(int(first), int(last or first) + 1)
    except ValueError:
        raise typer.BadParameter(f"--seeds {text}: it must be FIRST..LAST, or one number") from None


if __name__ == "__main__":
    sys.exit(main())

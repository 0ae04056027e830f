"""Run histories, or print the events of one.

    python -m simulation --seeds 0..199              all histories, two processes, a line for each
    python -m simulation --history fencing --seed 7  one seed: every event, with the server's log
    python -m simulation --history ledger --seed 7 --explain    the causes: faults, and events of ledgers and entries
    python -m simulation --history ledger --seeds 0..999 --histogram faults.png
    python -m simulation --seeds 0..199 --plant ack-before-fsync

Exit code 0: no invariant was violated. 1: one was; the last lines have the command that replays it.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path

from quire.service import log
from simulation.common.bugs import BUGS, plant
from simulation.common.histogram import Histogram
from simulation.common.sweep import HISTORIES, Outcome, run_one, sweep, with_full_disks
from simulation.common.tale import Tale


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.seed is not None:
        return _tell(options)
    histories = list(HISTORIES) if options.history == "all" else [options.history]
    failed: list[Outcome] = []
    histogram = Histogram()
    total = len(histories) * len(options.seeds)
    with open(options.digests, "w", encoding="ascii") if options.digests else nullcontext() as digests:
        for number, outcome in enumerate(
            sweep(histories, options.seeds, jobs=options.jobs, bug=options.plant or "", full_disks=options.full_disks),
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


def _tell(options: argparse.Namespace) -> int:
    """Print the history of one seed: events as they happen, and the server's log lines."""
    if options.explain:
        return _explain(options)
    history = "standalone" if options.history == "all" else options.history
    log.configure("info", sys.stdout)
    lines = _Printed()
    with plant(options.plant) if options.plant else nullcontext():
        outcome = run_one(
            history, options.seed, lines=lines, steps=options.steps, **with_full_disks(history, options.full_disks)
        )
    print(outcome.details, end="")
    print(f"{history} {'' if outcome.ok else 'FAILED '}{outcome.line}")
    return 0 if outcome.ok else 1


def _explain(options: argparse.Namespace) -> int:
    """Print the events that led to the violation of a history of ledgers or of a cluster.

    These are the faults, and the events of the entry concerned; without a violation of that kind, all events."""
    history = "cluster" if options.history == "cluster" else "ledger"
    log.configure("critical")
    tale = Tale()
    with plant(options.plant) if options.plant else nullcontext():
        outcome = run_one(history, options.seed, tale=tale, **with_full_disks(history, options.full_disks))
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


def _planted(options: argparse.Namespace) -> str:
    return (f" --plant {options.plant}" if options.plant else "") + (" --full-disks" if options.full_disks else "")


def _seeds(text: str) -> range:
    first, _, last = text.partition("..")
    return range(int(first), int(last or first) + 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m simulation", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--seeds", type=_seeds, default=range(200), metavar="FIRST..LAST", help="range of seeds (default 0..199)"
    )
    parser.add_argument("--seed", type=int, help="print the events of this seed")
    parser.add_argument("--steps", action="store_true", help="with --seed: print every step of every task too")
    parser.add_argument(
        "--explain",
        action="store_true",
        help="with --seed, for the histories ledger and cluster: print only the causes of the violation",
    )
    parser.add_argument(
        "--histogram", type=Path, metavar="FILE", help="write a picture of the number of faults of each kind"
    )
    parser.add_argument("--history", choices=[*HISTORIES, "all"], default="all")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes (default 2)")
    parser.add_argument("--plant", choices=sorted(BUGS), help="put this bug into the server")
    parser.add_argument(
        "--full-disks",
        action="store_true",
        help="in the histories ledger and cluster, disks of bookies are full at times",
    )
    parser.add_argument("--digests", metavar="FILE", help="write history, seed and digest of each run to FILE")
    return parser


if __name__ == "__main__":
    sys.exit(main())

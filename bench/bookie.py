"""`scripts/bench bookie`: one bookie process under a raw pipelined generator (version 2, fsync on, 10 ledgers), beside
one of Apache BookKeeper in interleaved rounds.

Rows: `adds` at full speed, `latency` of adds beside a flush, a compaction and a drain, `reads` of entries that are in
no cache, `recovery` of a journal, and `large`, a bookie with many ledgers. Medians of the rounds are compared; the
noise is what the rounds of a row differ by.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.bookie_rows.adds import add_rows
from bench.bookie_rows.large import large_rows
from bench.bookie_rows.latency import latency_rows
from bench.bookie_rows.reads import read_rows
from bench.bookie_rows.recovery import recovery_rows
from bench.bookie_rows.run import APACHE, QUIRE, Row, Run
from bench.bookies import apache_classes, zookeeper
from bench.picture import draw
from bench.yardstick import factor, measure, sentence

console = Console()
TABLE_WIDTH = 140
FULL_ENTRIES, FULL_LEDGERS, FULL_RECOVERY_MB = 10_000_000, 100_000, 1024


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench bookie", description=__doc__)
    parser.add_argument("rows", nargs="*", help="adds, latency, reads, recovery, large; all of them without a name")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="measured seconds of each load")
    parser.add_argument("--warm", type=float, default=20, help="seconds of load before adds are measured")
    parser.add_argument("--entries", type=int, default=500_000, help="entries among which `reads` reads")
    parser.add_argument("--reads", type=int, default=100_000, help="random reads of a round")
    parser.add_argument("--recovery-mb", type=int, default=256)
    parser.add_argument("--large-entries", type=int, default=1_000_000)
    parser.add_argument("--large-ledgers", type=int, default=10_000)
    parser.add_argument("--full-size", action="store_true", help="10^7 entries in 10^5 ledgers, a journal of 1 GB")
    parser.add_argument("--no-apache", action="store_true")
    parser.add_argument("--folder", type=Path, help="folder of the data; its disk is measured")
    parser.add_argument("--picture", type=Path, default=Path("out/bench-bookie.png"))
    given = parser.parse_args()
    if given.full_size:
        given.large_entries, given.large_ledgers, given.recovery_mb = FULL_ENTRIES, FULL_LEDGERS, FULL_RECOVERY_MB
    kinds: dict[str, Callable[[Run], list[Row]]] = {
        "adds": partial(add_rows, seconds=given.seconds, warm=given.warm),
        "latency": partial(latency_rows, seconds=given.seconds),
        "reads": partial(read_rows, entries=given.entries, reads=given.reads),
        "recovery": partial(recovery_rows, megabytes=given.recovery_mb),
        "large": partial(large_rows, entries=given.large_entries, ledgers=given.large_ledgers),
    }
    if unknown := [name for name in given.rows if name not in kinds]:
        parser.error(f"unknown rows {', '.join(unknown)}: {', '.join(kinds)}")
    folder = Path(tempfile.mkdtemp(prefix="quire-bench-", dir=given.folder))
    yardstick = factor(measure())
    found: list[Row] = []
    try:
        with zookeeper(folder / "zookeeper") as port:
            run = Run(
                folder=folder,
                zookeeper_port=port,
                classes=None if given.no_apache else apache_classes(),
                rounds=given.rounds,
                say=lambda line: console.print(line, style="dim", soft_wrap=True),
            )
            for name in given.rows or kinds:
                found += kinds[name](run)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _print(found, given.rounds)
    console.print(sentence(yardstick, factor(measure())), soft_wrap=True)
    _draw(found, given.picture)


def _print(rows: list[Row], rounds: int) -> None:
    table = Table(title=f"One bookie, fsync on, medians of {rounds} rounds")
    for column in ("", "Quire", "noise", "Apache", "noise", "Quire / Apache", "bound"):
        table.add_column(column, no_wrap=True)
    for row in rows:
        cells = []
        for kind in (QUIRE, APACHE):
            median = row.median(kind)
            cells += ["", ""] if median is None else [f"{_number(median)} {row.unit}", f"{row.spread(kind):.0%}"]
        ours, theirs = row.median(QUIRE), row.median(APACHE)
        ratio = f"{ours / theirs:.2f}" if ours is not None and theirs else ""
        sign = ">=" if row.bound.better == "more" else "<="
        bound = f"{sign} {row.bound.limit:g}" + (f" {row.unit}" if row.bound.alone else "") if row.bound.limit else ""
        judged = row.judged
        if bound and judged is not None:
            bound = f"[{'green' if row.bound.holds(judged) else 'red'}]{bound}[/]"
        table.add_row(row.title, *cells, ratio, bound)
    Console(width=max(console.width, TABLE_WIDTH)).print(table)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _draw(rows: list[Row], path: Path) -> None:
    bars = []
    for row in rows:
        judged = row.judged
        if judged is None or not row.bound.limit:
            continue
        if row.bound.alone:
            bars.append((f"{row.title} / bound of {row.bound.limit:g} {row.unit}", judged / row.bound.limit, 1.0))
        else:
            bars.append((f"{row.title} / Apache's", judged, row.bound.limit))
    better = [row.bound.better for row in rows if row.judged is not None and row.bound.limit]
    draw(
        [(*bar, each) for bar, each in zip(bars, better, strict=True)],
        path,
        label="Quire / Apache BookKeeper, or / a bound (black mark: expected)",
    )
    console.print(f"picture: {path}")


if __name__ == "__main__":
    main()

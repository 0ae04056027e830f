"""`scripts/bench bookie`: one bookie process under a raw pipelined generator (version 2, fsync on, 10 ledgers), beside
one of Apache BookKeeper in interleaved rounds.

Rows: `adds` at full speed, `journals` on two devices beside one, `latency` of adds beside a flush, a compaction, a
drain and a scrub, `reads` of entries that are in no cache, `recovery` of a journal, and `large`, a bookie with many
ledgers. Medians of the rounds are compared; the noise is what the rounds of a row differ by.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.bookie_rows.adds import add_rows
from bench.bookie_rows.journals import journal_rows
from bench.bookie_rows.large import large_rows
from bench.bookie_rows.latency import latency_rows
from bench.bookie_rows.reads import read_rows
from bench.bookie_rows.recovery import recovery_rows
from bench.bookie_rows.run import APACHE, QUIRE, Row, Run
from bench.bookies import apache_classes, zookeeper
from bench.picture import draw
from bench.yardstick import factor, measure, sentence
from quire.service.programs.command_line import run_command

console = Console()
ROWS = ("adds", "journals", "latency", "reads", "recovery", "large")
TABLE_WIDTH = 140
FULL_ENTRIES, FULL_LEDGERS, FULL_RECOVERY_MB = 10_000_000, 100_000, 1024


def main() -> int:
    """Run the command line; return the exit code."""
    return run_command(measure_rows, name="scripts/bench bookie", text=__doc__)


def measure_rows(
    only: Annotated[str, typer.Option(help="Rows, with commas.")] = ",".join(ROWS),
    rounds: Annotated[int, typer.Option()] = 3,
    seconds: Annotated[float, typer.Option(help="Measured seconds of each load.")] = 5,
    warm_s: Annotated[float, typer.Option("--warm", help="Seconds of load before adds are measured.")] = 20,
    entries: Annotated[int, typer.Option(help="Entries among which reads are measured.")] = 500_000,
    reads: Annotated[int, typer.Option(help="Random reads of a round.")] = 100_000,
    recovery_mb: Annotated[int, typer.Option(help="Journal to recover.")] = 256,
    large_entries: Annotated[int, typer.Option(help="Entries of the large bookie.")] = 1_000_000,
    large_ledgers: Annotated[int, typer.Option(help="Ledgers of the large bookie.")] = 10_000,
    full_size: Annotated[
        bool, typer.Option("--full-size", help="10^7 entries in 10^5 ledgers, and a journal of 1 GB.")
    ] = False,
    no_apache: Annotated[bool, typer.Option("--no-apache")] = False,
    data_folder: Annotated[
        Path | None, typer.Option("--folder", help="Folder of the data; its disk is measured.")
    ] = None,
    picture: Annotated[Path, typer.Option()] = Path("out/bench-bookie.png"),
) -> int:
    names = only.split(",")
    if unknown := set(names) - set(ROWS):
        raise typer.BadParameter(f"--only: there is no row {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    if full_size:
        large_entries, large_ledgers, recovery_mb = FULL_ENTRIES, FULL_LEDGERS, FULL_RECOVERY_MB
    kinds: dict[str, Callable[[Run], list[Row]]] = {
        "adds": partial(add_rows, seconds=seconds, warm=warm_s),
        "journals": partial(journal_rows, seconds=seconds, warm=warm_s),
        "latency": partial(latency_rows, seconds=seconds),
        "reads": partial(read_rows, entries=entries, reads=reads),
        "recovery": partial(recovery_rows, megabytes=recovery_mb),
        "large": partial(large_rows, entries=large_entries, ledgers=large_ledgers),
    }
    folder = Path(tempfile.mkdtemp(prefix="quire-bench-", dir=data_folder))
    yardstick = factor(measure())
    found: list[Row] = []
    try:
        with zookeeper(folder / "zookeeper") as port:
            run = Run(
                folder=folder,
                zookeeper_port=port,
                classes=None if no_apache else apache_classes(),
                rounds=rounds,
                say=lambda line: console.print(line, style="dim", soft_wrap=True),
            )
            for name in names:
                found += kinds[name](run)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _print(found, rounds)
    console.print(sentence(yardstick, factor(measure())), soft_wrap=True)
    _draw(found, picture)
    return 0


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
    sys.exit(main())

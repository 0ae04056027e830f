"""Report of the demo: progress while it runs, a table at the end."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tools.demo.archive import Archived
from tools.demo.copying import Copied
from tools.demo.files import Rebuilder, Tree
from tools.demo.run import Outcome

_SHARE = 10
"""Percent between two lines on a plain output."""


class TerminalProgress:
    """Progress as a bar."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None

    def begin(self, title: str, total: int) -> None:
        columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=self._console)
        self._bar.add_task(title, total=total)
        self._bar.start()

    def at(self, count: int) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=count)

    def note(self, text: str) -> None:
        self._console.print(text, highlight=False)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class PlainProgress:
    """Progress as lines, for files and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._title = ""
        self._total = 1
        self._share = 0

    def begin(self, title: str, total: int) -> None:
        self._title, self._total, self._share = title, max(1, total), 0
        self.note(f"{title} {total} messages")

    def at(self, count: int) -> None:
        share = count * 100 // self._total // _SHARE * _SHARE
        if share > self._share:
            self._share = share
            self.note(f"{self._title} {share} % ({count} of {self._total})")

    def note(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    def end(self) -> None:
        pass


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that the fraction `share` (0 to 1) of all values does not exceed; 0 of none.

    >>> percentile([3.0, 1.0, 2.0], 0.5)
    2.0
    """
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def table(
    tree: Tree,
    rebuilder: Rebuilder,
    outcome: Outcome,
    differences: int,
    archived: tuple[Archived, int] | None = None,
    copied: tuple[Copied, int] | None = None,
) -> Table:
    """Return the table of one run; `archived`, `copied` with the number of files that differ; None: skipped."""
    made = Table(show_header=False)
    made.add_column("what")
    made.add_column("figure", justify="right")
    left_out = f"{tree.binary} binary, {tree.links} links"
    left_out += f", {tree.other} other" if tree.other else ""
    rows = (
        ("files", f"{len(tree.files)}"),
        ("left out", left_out),
        (
            "lines",
            f"{sum(content.count(10) + (content[-1:] not in (b'', bytes([10]))) for content in tree.files.values())}",
        ),
        ("messages", f"{outcome.messages}"),
        ("redeliveries", f"{rebuilder.repeated}"),
        ("kills survived", f"{len(outcome.kills)}"),
        *((f"  while {kill.phase}", f"{kill.open} open, back after {kill.back_s:.1f} s") for kill in outcome.kills),
        ("published/s", f"{outcome.messages / outcome.publish_s:.0f}"),
        ("consumed/s", f"{outcome.messages / outcome.consume_s:.0f}"),
        ("publish p50", f"{percentile(outcome.latencies_s, 0.5) * 1000:.1f} ms"),
        ("publish p99", f"{percentile(outcome.latencies_s, 0.99) * 1000:.1f} ms"),
        ("keys out of order", f"{len(rebuilder.out_of_order)}"),
        ("differences", f"{differences}"),
    )
    if archived is not None:
        made_of, differing = archived
        rows = (
            *rows,
            ("archived", f"{made_of.rows} rows, {made_of.files} Parquet files"),
            ("archived/s", f"{made_of.rows_per_s}"),
            ("archive differences", f"{differing}"),
        )
    if copied is not None:
        copy, differing = copied
        rows = (
            *rows,
            ("copied", f"{copy.rows} rows, killed in batch {copy.batch}"),
            ("copied/s", f"{copy.rows_per_s}"),
            ("copy differences", f"{differing}"),
        )
    for row in rows:
        made.add_row(*row)
    return made

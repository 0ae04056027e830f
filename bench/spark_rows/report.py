"""Ratios, table, pictures and the section of docs/measurements.md from the rows of `scripts/bench spark`."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bench.picture import draw
from bench.spark_rows.load import SIZE

BATCH = "micro-batch of one row, s"
EXACT_BATCH = "the same, written exactly once, s"
PLAN = "planning step over all partitions, s"
MEMORY_BROKER = "memory of a task with messages of 5 MB, through the broker, MB"
MEMORY = "the same, from bookies, MB"
AT_MOST = {BATCH: 0.25, EXACT_BATCH: None, PLAN: 2.0, MEMORY_BROKER: 300.0, MEMORY: 300.0}
"""Wanted figure of each row that is measured once; None: none."""


class Ratio(NamedTuple):
    """One rate over another; `at_least` by kind of messages, where something is wanted."""

    title: str
    over: str
    under: str
    at_least: Mapping[str, float]


RATIOS = (
    Ratio("broker way / client", "source", "client consumes", {"batched": 0.6, "unbatched": 0.9}),
    Ratio("broker way / client's reader", "source", "client reads", {}),
    Ratio("broker way / file", "source", "source from a file", {"batched": 0.4, "unbatched": 0.4}),
    Ratio(
        "bookie way / client",
        "cluster: source, bookies",
        "cluster: client consumes",
        {"batched": 1.0, "unbatched": 2.0},
    ),
    Ratio("bookie way / local Parquet", "cluster: source, bookies", "local Parquet", {"batched": 0.4}),
    Ratio("bookie way / broker way", "cluster: source, bookies", "cluster: source, broker", {}),
    Ratio("sink / client", "sink", "client produces", {}),
    Ratio("exactly-once sink / client", "sink, exactly once", "client produces", {"batched": 1.0}),
)

HEADING = "## Spark"
PICTURES = ("spark.png", "spark-by-batch.png")


@dataclass(slots=True)
class Results:
    """Everything that was measured."""

    rates: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    """Rows per second by kind of messages, round and operation."""
    sizes: dict[str, dict[int, float]] = field(default_factory=dict)
    """Rows per second by way of reading and messages of a batch."""
    single: dict[str, float] = field(default_factory=dict)
    slowness: float = 1.0
    """Time that the machine takes, relative to that of `bench.yardstick`."""


class Row(NamedTuple):
    """One comparison with what is wanted."""

    title: str
    found: float
    wanted: float | None
    better: str

    @property
    def good(self) -> bool | None:
        if self.wanted is None:
            return None
        return self.found >= self.wanted if self.better == "more" else self.found <= self.wanted

    @property
    def mark(self) -> str:
        if self.wanted is None:
            return ""
        return f"{'>=' if self.better == 'more' else '<='} {self.wanted:g} {'ok' if self.good else 'SHORT'}"


def medians(results: Results) -> dict[str, dict[str, float]]:
    """Return the median rows per second by kind of messages and operation."""
    return {
        kind: {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
        for kind, rounds in results.rates.items()
    }


def rows(results: Results) -> list[Row]:
    """Return the comparisons: medians of the ratios of each round, and the single rows."""
    found = []
    for kind, rounds in results.rates.items():
        for ratio in RATIOS:
            of_rounds = [each[ratio.over] / each[ratio.under] for each in rounds]
            title = f"{kind}: {ratio.title}"
            found.append(Row(title, statistics.median(of_rounds), ratio.at_least.get(kind), "more"))
    found += [Row(name, value, AT_MOST[name], "less") for name, value in results.single.items()]
    return found


def show(results: Results, folder: Path, console: Console) -> None:
    """Print the tables; write pictures and figures into a folder."""
    table = Table("messages", "what", "rows/s", "MB/s", title="1 KB messages, medians of one run")
    for kind, rates in medians(results).items():
        for name, rate in rates.items():
            table.add_row(kind, name, f"{rate:,.0f}", f"{rate * SIZE / 1e6:,.1f}")
    console.print(table)
    compared = Table("what", "found", "wanted")
    for row in rows(results):
        compared.add_row(row.title, f"{row.found:.2f}", row.mark)
    console.print(compared)
    folder.mkdir(parents=True, exist_ok=True)
    pictures(results, folder)
    (folder / "spark.json").write_text(json.dumps(asdict(results), indent=1))
    console.print(f"pictures and figures: {', '.join(str(folder / name) for name in PICTURES)}, spark.json")
    console.print(f"the machine takes {results.slowness:.2f} times as long as that of the yardstick", highlight=False)


def pictures(results: Results, folder: Path) -> None:
    """Write the two pictures: the ratios, and throughput by batch size and way of reading."""
    bars = [(row.title, row.found, row.wanted or 1.0, row.better) for row in rows(results) if row.better == "more"]
    draw(bars, folder / PICTURES[0], "the first of the two / the second (1.0 = equal; black mark: wanted)")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4))
    for name, rates in results.sizes.items():
        axes.plot(list(rates), [rate / 1000 for rate in rates.values()], marker="o", label=name)
    axes.set_xscale("log")
    axes.set_xlabel("messages of 1 KB in a batch")
    axes.set_ylabel("thousand rows per second")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(folder / PICTURES[1], dpi=120)
    pyplot.close(figure)


def section(results: Results, day: str) -> str:
    """Return the section of docs/measurements.md."""
    rates = medians(results)
    kinds = list(rates)
    lines = [HEADING, ""]
    rounds = len(results.rates[kinds[0]])
    lines += [
        f"`scripts/bench spark`, {day}: messages of 1 KB, `local[2]`, medians of {rounds} interleaved rounds.",
        f"The machine took {results.slowness:.1f} times as long as the one of the yardstick. Rows per second:",
        "",
        f"| | {' | '.join(kinds)} |",
        f"|---|{'---|' * len(kinds)}",
    ]
    lines += [f"| {name} | {' | '.join(f'{rates[kind][name]:,.0f}' for kind in kinds)} |" for name in rates[kinds[0]]]
    lines += ["", "| | found | wanted |", "|---|---|---|"]
    for row in rows(results):
        wanted = "" if row.wanted is None else f"{'>=' if row.better == 'more' else '<='} {row.wanted:g}"
        short = "" if row.good is not False else " (short)"
        lines.append(f"| {row.title} | {row.found:.2f}{short} | {wanted} |")
    lines += ["", *(f"![{name}](measured/{name})" for name in PICTURES)]
    return "\n".join(lines) + "\n"


def write_docs(results: Results, docs: Path, day: str = "") -> None:
    """Replace the section of docs/measurements.md, which is added at its end if it has none, and the pictures."""
    (docs / "measured").mkdir(exist_ok=True)
    pictures(results, docs / "measured")
    page = docs / "measurements.md"
    page.write_text(replaced(page.read_text(), section(results, day or time.strftime("%Y-%m-%d"))))


def replaced(text: str, new: str) -> str:
    """Return the text of a page with a section in place of the one with the same heading.

    >>> replaced("# P\\n\\n## Spark\\n\\nold\\n\\n## Next\\n", "## Spark\\n\\nnew\\n")
    '# P\\n\\n## Spark\\n\\nnew\\n\\n## Next\\n'
    >>> replaced("# P\\n", "## Spark\\n\\nnew\\n")
    '# P\\n\\n## Spark\\n\\nnew\\n'
    """
    before, heading, old = text.partition(f"\n{HEADING}\n")
    if not heading:
        return f"{text.rstrip()}\n\n{new}"
    _, following, rest = old.partition("\n## ")
    return f"{before.rstrip()}\n\n{new}" + (f"\n## {rest}" if following else "")

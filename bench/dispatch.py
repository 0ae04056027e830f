"""Delivery by one standalone server: processor time per message, and rates, in interleaved rounds, beside Pulsar.

    scripts/bench dispatch [ROW ...] [--rounds 3] [--messages 20000] [--drain-mb 1000] [--seconds 5] [--no-pulsar]

    shared         1 KB to 1, 4 and 16 Shared consumers
    keys           20,000 waiting keys to 4 Key_Shared consumers, beside 4 Shared ones, with queues of 1000 and of 1
    fan-in         500 producers that do not batch, 20 Key_Shared consumers: how many messages come in and go out
    drain          a backlog (of 1 GB) beside a producer at its tail: rate, and latency of sends
    subscriptions  consuming one of 1000 subscriptions of a topic, beside the only one of another
    deduplication  publishing in a namespace with deduplication and in one without, in turns

The generators are raw: what they do per message is the same in all rows. The CPU is that of the server. Each round runs
each row on one server and then on the other. Medians are printed. `out/bench-dispatch.png` has the ratios to Pulsar,
`out/bench-dispatch-bounds.png` those of Quire's rows that have a bound.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from bench.dispatching.rows import DRAIN, FAN_IN, SUBSCRIPTIONS, Found, Rows, Sizes
from bench.picture import draw
from bench.servers import PULSAR_VERSION, pulsar, pulsar_jars, quire
from bench.vs import Figure, console, first_receipt, report, warm
from quire.service.programs.command_line import run_command

WORKLOADS = (
    "1 Shared",
    "4 Shared",
    "16 Shared",
    "4 Shared, keys, queue 1000",
    "4 Key_Shared, keys, queue 1000",
    "4 Shared, keys, queue 1",
    "4 Key_Shared, keys, queue 1",
    FAN_IN,
    DRAIN,
    "one of 1 subscriptions",
    f"one of {SUBSCRIPTIONS} subscriptions",
    "publish, deduplication off",
    "publish, deduplication on",
)
MORE = {
    FAN_IN: (Figure(workload=FAN_IN, title=FAN_IN, key="share", unit="of sent", better="more", expected=1.0),),
    DRAIN: (
        Figure(workload=DRAIN, title=DRAIN, key="mb_s", unit="MB/s", better="more", expected=1.0),
        Figure(workload=DRAIN, title=DRAIN, key="send_p99_ms", unit="ms p99", better="less", expected=1.0),
    ),
}
BOUNDS = (
    (
        "Key_Shared / Shared, rate, queue 1000",
        "4 Key_Shared, keys, queue 1000",
        "4 Shared, keys, queue 1000",
        "rate",
        0.8,
    ),
    (
        "Key_Shared / Shared, CPU, queue 1000",
        "4 Key_Shared, keys, queue 1000",
        "4 Shared, keys, queue 1000",
        "cpu_us",
        1.25,
    ),
    ("Key_Shared / Shared, rate, queue 1", "4 Key_Shared, keys, queue 1", "4 Shared, keys, queue 1", "rate", 0.8),
    ("1000 subscriptions / 1, CPU", f"one of {SUBSCRIPTIONS} subscriptions", "one of 1 subscriptions", "cpu_us", 1.1),
    ("deduplication on / off, CPU", "publish, deduplication on", "publish, deduplication off", "cpu_us", 1.05),
)
"""Title, row, row that it is compared with, key, bound: rates are at least that, CPU is at most."""
KEPT_UP = 0.95
"""Share of what comes in that the consumers of the fan-in row must have."""


def figures() -> list[Figure]:
    """Return the rows of the table beside Pulsar."""
    found: list[Figure] = []
    for row in WORKLOADS:
        found += [
            Figure(workload=row, title=row, key="rate", unit="k/s", better="more", expected=1.0, scale=1e-3),
            Figure(workload=row, title=row, key="cpu_us", unit="us", better="less", expected=1.0),
            *MORE.get(row, ()),
        ]
    return found


def main() -> int:
    """Run the command line; return the exit code."""
    return run_command(dispatch, name="scripts/bench dispatch", text=__doc__)


def dispatch(
    rows: Annotated[list[str] | None, typer.Argument(metavar="[ROW]...", help="Default: all.")] = None,
    rounds: Annotated[int, typer.Option()] = 3,
    messages: Annotated[int, typer.Option()] = 20_000,
    drain_mb: Annotated[int, typer.Option()] = 1000,
    seconds: Annotated[float, typer.Option()] = 5.0,
    warm_s: Annotated[float, typer.Option("--warm", help="Seconds of load before measuring, if Pulsar runs.")] = 30,
    no_pulsar: Annotated[bool, typer.Option("--no-pulsar")] = False,
) -> int:
    lib = None if no_pulsar else pulsar_jars()
    if lib is None:
        console.print("Apache Pulsar is left out (no Maven or Java, or --no-pulsar): only Quire is measured")
    sizes = Sizes(messages, drain_mb, seconds)
    with tempfile.TemporaryDirectory(prefix="quire-dispatch-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        sides = [Rows(stack.enter_context(quire(folder / "quire")), sizes)]
        if lib is not None:
            sides.append(Rows(stack.enter_context(pulsar(folder / "pulsar", lib)), sizes))
        if unknown := set(rows or ()) - set(sides[0].runs):
            raise typer.BadParameter(f"{', '.join(sorted(unknown))}: rows are {', '.join(sides[0].runs)}")
        for side in sides:
            first_receipt(side.server)
        if len(sides) > 1:
            warm([side.server for side in sides], warm_s)
        for number in range(rounds):
            for row in rows or sides[0].runs:
                # The order alternates, so that a drift of the machine favours neither.
                for side in sides if number % 2 == 0 else reversed(sides):
                    side.runs[row]()
                    console.print(f"round {number + 1}/{rounds}  {row:<14} {side.server.name}")
    results = {side.server.name: side.medians() for side in sides}
    title = f"Quire beside Apache Pulsar {PULSAR_VERSION}, both standalone, fsync on (medians)"
    report(title, figures(), results, Path("out/bench-dispatch.png"))
    show_bounds(results["quire"])
    return 0


def show_bounds(rows: dict[str, Found]) -> None:
    """Print and draw the ratios of Quire's rows to each other."""
    drawn: list[tuple[str, float, float, str]] = []
    for title, row, other, key, bound in BOUNDS:
        if row in rows and other in rows:
            drawn.append((title, rows[row][key] / rows[other][key], bound, "more" if key == "rate" else "less"))
    if FAN_IN in rows:
        drawn.append(("fan-in: delivered / published", rows[FAN_IN]["share"], KEPT_UP, "more"))
    for title, ratio, bound, better in drawn:
        console.print(f"{title}: {ratio:.2f} ({better} is better, bound {bound})")
    if drawn:
        draw(drawn, Path("out/bench-dispatch-bounds.png"), "ratio (black mark: bound)")

"""`scripts/bench vs`: Quire and Apache Pulsar, both standalone, both with fsync on, in one interleaved run.

Each round runs each workload on one server and then on the other; the medians over the rounds are compared. Both
servers are warmed by half a minute of mixed load first. Start-up and idle memory are taken before that.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol, TypeAlias

import typer
from rich.console import Console
from rich.table import Table

from bench.picture import draw
from bench.procs import pss_mb
from bench.raw import RawClient, send_frame
from bench.servers import PULSAR_VERSION, Server, pulsar, pulsar_jars, quire
from quire.service.programs.command_line import run_command

console = Console()
Results: TypeAlias = dict[str, dict[str, dict[str, float]]]
"""Medians over the rounds: server -> workload -> key."""
IDLE_S = 5.0
"""Idle time before the memory of an idle server is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row of the comparison. `better` says whether more or less of `key` is better, `expected` is Quire/Pulsar."""

    workload: str
    title: str
    key: str
    unit: str
    better: str
    expected: float
    scale: float = 1.0


FIGURES = [
    Figure(
        workload="raw_1k",
        title="raw 1 KB, window 1000",
        key="rate",
        unit="k/s",
        better="more",
        expected=1.0,
        scale=1e-3,
    ),
    Figure(workload="raw_1k", title="raw 1 KB, window 1000", key="cpu_us", unit="us", better="less", expected=0.8),
    Figure(
        workload="raw_100",
        title="raw 100 B, window 1000",
        key="rate",
        unit="k/s",
        better="more",
        expected=0.7,
        scale=1e-3,
    ),
    Figure(workload="raw_100", title="raw 100 B, window 1000", key="cpu_us", unit="us", better="less", expected=1.0),
    Figure(
        workload="client_1k",
        title="client 1 KB unbatched",
        key="rate",
        unit="k/s",
        better="more",
        expected=1.0,
        scale=1e-3,
    ),
    Figure(workload="client_1k", title="client 1 KB unbatched", key="cpu_us", unit="us", better="less", expected=0.6),
    Figure(
        workload="client_1k_two",
        title="two clients 1 KB unbatched",
        key="rate",
        unit="k/s",
        better="more",
        expected=1.0,
        scale=1e-3,
    ),
    Figure(
        workload="client_1k_two",
        title="two clients 1 KB unbatched",
        key="cpu_us",
        unit="us",
        better="less",
        expected=0.6,
    ),
    Figure(
        workload="client_1k_batched",
        title="client 1 KB batched",
        key="rate",
        unit="k/s",
        better="more",
        expected=0.97,
        scale=1e-3,
    ),
    Figure(
        workload="client_1k_batched", title="client 1 KB batched", key="cpu_us", unit="us", better="less", expected=0.5
    ),
    Figure(
        workload="client_100_batched",
        title="client 100 B batched",
        key="rate",
        unit="k/s",
        better="more",
        expected=0.97,
        scale=1e-3,
    ),
    Figure(
        workload="client_100_batched",
        title="client 100 B batched",
        key="cpu_us",
        unit="us",
        better="less",
        expected=1.0,
    ),
    Figure(workload="sync", title="synchronous send", key="p50_ms", unit="ms p50", better="less", expected=0.2),
    Figure(workload="sync", title="synchronous send", key="p99_ms", unit="ms p99", better="less", expected=0.5),
    Figure(
        workload="end_to_end",
        title="publish to receive, 500/s",
        key="p50_ms",
        unit="ms p50",
        better="less",
        expected=0.25,
    ),
    Figure(
        workload="end_to_end",
        title="publish to receive, 500/s",
        key="p99_ms",
        unit="ms p99",
        better="less",
        expected=0.4,
    ),
    Figure(
        workload="drain_batched",
        title="drain 1 KB batched",
        key="rate",
        unit="k/s",
        better="more",
        expected=1.0,
        scale=1e-3,
    ),
    Figure(workload="drain_batched", title="drain 1 KB batched", key="cpu_us", unit="us", better="less", expected=0.5),
    Figure(
        workload="drain_unbatched",
        title="drain 1 KB unbatched",
        key="rate",
        unit="k/s",
        better="more",
        expected=1.8,
        scale=1e-3,
    ),
    Figure(
        workload="drain_unbatched", title="drain 1 KB unbatched", key="cpu_us", unit="us", better="less", expected=0.3
    ),
    Figure(workload="new_topics", title="new topics", key="rate", unit="/s", better="more", expected=4.0),
    Figure(workload="start", title="start to first receipt", key="seconds", unit="s", better="less", expected=0.15),
    Figure(workload="idle", title="idle memory", key="pss_mb", unit="MB PSS", better="less", expected=0.05),
]


def first_receipt(server: Server) -> float:
    """Return the seconds from the start of the process to the first receipt of a message."""
    deadline = server.started + 120
    while True:
        try:
            client = RawClient("127.0.0.1", server.port)
            client.producer("persistent://public/default/first")
            client.socket.sendall(send_frame(1, 0, b"x"))
            answer, _ = client.receive()
            if answer.HasField("send_receipt"):
                client.socket.close()
                return time.perf_counter() - server.started
        except (OSError, RuntimeError):
            if time.perf_counter() > deadline:
                raise
        time.sleep(0.01)


class Loaded(Protocol):
    """Target of a load: a server, or a cluster."""

    @property
    def name(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def pids(self) -> list[int]: ...


def run_load(server: Loaded, workload: str, seconds: float, token_file: Path | None = None) -> dict[str, float]:
    """Run a workload on a server; return its figures. `token_file`: has the token of the client's role."""
    command = [sys.executable, "-m", "bench.load", workload, "--port", str(server.port)]
    command += ["--pids", ",".join(map(str, server.pids)), "--seconds", str(seconds)]
    command += [] if token_file is None else ["--token-file", str(token_file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"{workload} on {server.name} failed:\n{done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def warm(servers: Sequence[Loaded], seconds: float) -> None:
    """Run load on each before it is measured."""
    for server in servers if seconds else ():
        console.print(f"warming {server.name} for {seconds:.0f} s")
        run_load(server, "warm", seconds)


def compare(servers: Sequence[Loaded], workloads: Sequence[str], rounds: int, seconds: float) -> Results:
    """Run each workload on each server, `rounds` times; timed ones for so many seconds."""
    samples: dict[str, dict[str, list[dict[str, float]]]] = {server.name: {} for server in servers}
    for number in range(rounds):
        for workload in workloads:
            # The order alternates, so that a drift of the machine favours neither.
            for server in servers if number % 2 == 0 else reversed(servers):
                found = run_load(server, workload, seconds)
                samples[server.name].setdefault(workload, []).append(found)
                shown = "  ".join(f"{key} {value:,.3g}" for key, value in found.items())
                console.print(f"round {number + 1}/{rounds}  {workload:<20} {server.name:<7} {shown}")
    return {
        name: {
            workload: {key: statistics.median(each[key] for each in found) for key in found[0]}
            for workload, found in loads.items()
        }
        for name, loads in samples.items()
    }


def judged(figure: Figure, ours: float, ratio: float | None) -> tuple[str, str]:
    """Return the expectation, and whether it is met; "" if there is nothing to compare with."""
    more = figure.better == "more"
    expected = f"{'>=' if more else '<='} {figure.expected:.2f}"
    if ratio is None:
        return expected, ""
    return expected, "ok" if (ratio >= figure.expected if more else ratio <= figure.expected) else "SHORT"


def report(
    title: str,
    figures: Sequence[Figure],
    results: Results,
    picture: Path,
    judge: Callable[[Figure, float, float | None], tuple[str, str]] = judged,
) -> None:
    """Print Quire's figures beside Pulsar's, and draw the ratios. `judge(figure, ours, ratio)`: see `judged`."""
    table = Table(title=title)
    for column in ("figure", "unit", "Quire", "Pulsar", "ratio", "expected", ""):
        table.add_column(column, justify="left" if column in ("figure", "unit") else "right")
    rows: list[tuple[str, float, float, str]] = []
    for figure in figures:
        ours = results["quire"].get(figure.workload, {}).get(figure.key)
        theirs = results.get("pulsar", {}).get(figure.workload, {}).get(figure.key)
        if ours is None:
            continue
        ratio = ours / theirs if theirs else None
        table.add_row(
            figure.title,
            figure.unit,
            f"{ours * figure.scale:,.2f}",
            f"{theirs * figure.scale:,.2f}" if theirs else "-",
            f"{ratio:.2f}" if ratio is not None else "-",
            *judge(figure, ours, ratio),
        )
        if ratio is not None:
            rows.append((f"{figure.title}, {figure.unit}", ratio, figure.expected, figure.better))
    console.print(table)
    if rows:
        draw(rows, picture)
        console.print(f"picture: {picture}")


def main() -> int:
    """Run the command line; return the exit code."""
    return run_command(vs, name="scripts/bench vs", text=__doc__)


def vs(
    rounds: Annotated[int, typer.Option()] = 3,
    seconds: Annotated[float, typer.Option(help="Measured seconds of each timed workload.")] = 5,
    warm_s: Annotated[float, typer.Option("--warm", help="Seconds of load before measuring.")] = 30,
    only: Annotated[str, typer.Option(help="Workloads, comma-separated.")] = "",
    no_pulsar: Annotated[bool, typer.Option("--no-pulsar")] = False,
    picture: Annotated[Path, typer.Option()] = Path("out/bench-vs.png"),
) -> int:
    workloads = dict.fromkeys(figure.workload for figure in FIGURES if figure.workload not in ("start", "idle"))
    wanted = only.split(",") if only else list(workloads)
    if unknown := [each for each in wanted if each not in workloads]:
        raise typer.BadParameter(f"no workload {', '.join(unknown)}; there are {', '.join(workloads)}")
    lib = None if no_pulsar else pulsar_jars()
    if lib is None:
        console.print("Apache Pulsar is left out (no Maven or Java, or --no-pulsar): only Quire is measured")
    folder = Path(tempfile.mkdtemp(prefix="quire-bench-"))
    results: Results = {}
    try:
        with contextlib.ExitStack() as stack:
            servers = [stack.enter_context(quire(folder / "quire"))]
            once = {servers[0].name: {"start": {"seconds": first_receipt(servers[0])}}}
            if lib is not None:
                servers.append(stack.enter_context(pulsar(folder / "pulsar", lib)))
                once["pulsar"] = {"start": {"seconds": first_receipt(servers[1])}}
            time.sleep(IDLE_S)
            for server in servers:
                once[server.name]["idle"] = {"pss_mb": pss_mb(server.pids)}
            warm(servers, warm_s)
            results = compare(servers, [each for each in workloads if each in wanted], rounds, seconds)
            for name, found in once.items():
                results[name] |= found
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    title = f"Quire beside Apache Pulsar {PULSAR_VERSION}, both standalone, fsync on (medians)"
    report(title, FIGURES, results, picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())

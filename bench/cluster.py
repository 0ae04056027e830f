"""`scripts/bench cluster`: one broker, three bookies and ZooKeeper, 3/3/2, fsync on: Quire's beside Apache Pulsar's, in
one interleaved run; and the repair of ledgers by Quire's auto recovery beside Apache BookKeeper's.

Each round runs each workload on one cluster and then on the other; medians over the rounds are compared. Both are
warmed by half a minute of mixed load first. CPU is that of all processes. Memory is without ZooKeeper.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Protocol

import pulsar
import typer
from rich.console import Console
from rich.table import Table

from bench.procs import pss_mb
from bench.repair import Repair, repair
from bench.servers import PULSAR_VERSION, pulsar_jars
from bench.vs import Figure, Loaded, Results, compare, judged, report, warm
from bench.yardstick import factor, measure, sentence
from quire.service import log
from quire.service.programs.command_line import run_command
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.lookup import owner_port
from tools.local_cluster.original import OriginalCluster
from tools.local_cluster.plan import Kind, Plan

console = Console()
SESSION_TIMEOUT_MS = 3000


class Measured(Loaded, Protocol):
    """A cluster of either kind, as used by the measurements."""

    @property
    def server_pids(self) -> list[int]:
        """Return the pids of the servers, without ZooKeeper."""


class Quire:
    """A cluster of Quire."""

    name = "quire"

    def __init__(self, folder: Path, *, brokers: int = 1, session_timeout_ms: int = 30_000) -> None:
        plan = Plan(bookies=3, brokers=brokers, recoveries=0, session_timeout_ms=session_timeout_ms)
        self.cluster = LocalCluster.make(folder, plan, bound=True)

    @property
    def port(self) -> int:
        return self.cluster.nodes(Kind.BROKER)[0].port

    @property
    def pids(self) -> list[int]:
        return self.cluster.pids()

    @property
    def server_pids(self) -> list[int]:
        return self.cluster.pids(Kind.BOOKIE, Kind.BROKER)


def _figure(workload: str, title: str, key: str, unit: str, better: str, expected: float, scale: float = 1.0) -> Figure:
    return Figure(workload=workload, title=title, key=key, unit=unit, better=better, expected=expected, scale=scale)


PARTS = ("loads", "failover", "repair")
FIGURES = [
    _figure("raw_1k", "raw 1 KB, window 1000", "rate", "k/s", "more", 1.5, 1e-3),
    _figure("raw_1k", "raw 1 KB, window 1000", "cpu_us", "us", "less", 18 / 31),
    _figure("sync", "synchronous send", "p50_ms", "ms p50", "less", 0.4),
    _figure("new_topics", "new topics", "rate", "/s", "more", 3.0),
    _figure("memory", "memory without ZooKeeper", "pss_mb", "MB PSS", "less", 0.3),
    _figure("failover", "broker killed, to the next receipt", "seconds", "s", "less", 1.0),
    _figure("repair", "repair of ledgers, one worker", "rate", "ledgers/s", "more", 1.0),
]
LOADS = ("raw_1k", "sync", "new_topics")
CPU_MAX_US = 18.0
"""CPU time per message that is good whatever the ratio."""
FAILOVER_MAX_S = SESSION_TIMEOUT_MS / 1000 + 1.0
"""Limit of a failover, which replaces the ratio."""
PACE_S = 0.02
"""Time between two messages while a broker is down."""
UNDER_WAY_S = 0.05
"""Time after the kill within which receipts belong to earlier messages."""


def loads(clusters: Sequence[Measured], *, rounds: int, seconds: float, warm_s: float) -> Results:
    warm(clusters, warm_s)
    found = compare(clusters, LOADS, rounds, seconds)
    for cluster in clusters:
        found[cluster.name]["memory"] = {"pss_mb": pss_mb(cluster.server_pids)}
    return found


def gap_s(url: str, kill: Callable[[str], None], deadline_s: float = 120.0) -> float:
    """Return the seconds without a receipt after the topic's broker is killed, as seen by the official client.

    `kill` gets the topic's name."""
    client = pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    topic = f"persistent://public/default/failover-{time.time_ns()}"
    deadline = time.perf_counter() + deadline_s
    while True:  # a listening broker may not serve yet, and refuses at once until it does
        try:
            producer = client.create_producer(topic, batching_enabled=False, send_timeout_millis=0)
            break
        except pulsar.PulsarException:
            if time.perf_counter() > deadline:
                raise
            time.sleep(0.5)
    for _ in range(100):
        producer.send(b"x" * 1024)
    kill(topic)
    killed = time.perf_counter()
    gaps: list[float] = []
    failed: list[Any] = []
    settled = threading.Event()

    def done(result: Any, _: Any) -> None:
        gap = time.perf_counter() - killed
        if result != pulsar.Result.Ok:
            failed.append(result)
        elif gap > UNDER_WAY_S:
            gaps.append(gap)
        else:
            return
        settled.set()

    while not settled.wait(PACE_S) and time.perf_counter() - killed < deadline_s:
        producer.send_async(b"x" * 1024, done)
    if not gaps:
        raise RuntimeError(f"no receipt within {deadline_s:g} s, {len(failed)} failures")
    client.close()
    return gaps[0]


def kill_owner(cluster: LocalCluster, topic: str) -> None:
    port = owner_port(cluster.web_urls[0], topic)
    cluster.kill(next(node for node in cluster.nodes(Kind.BROKER) if node.port == port))


def kill_owner_of_theirs(cluster: OriginalCluster, topic: str) -> None:
    port = owner_port(cluster.web_url, topic)
    next(broker for broker in cluster.brokers if port in broker.ports).kill()


def failover(folder: Path, lib: Path | None, rounds: int, results: Results) -> None:
    """Measure failovers of two brokers each, with a session timeout of 3 s for both."""
    gaps: dict[str, list[float]] = {}
    for number in range(rounds):
        ours = Quire(folder / f"failover-quire-{number}", brokers=2, session_timeout_ms=SESSION_TIMEOUT_MS)
        try:
            ours.cluster.up()
            gaps.setdefault(ours.name, []).append(gap_s(ours.cluster.service_url, partial(kill_owner, ours.cluster)))
        finally:
            ours.cluster.abandon()
        if lib is None:
            continue
        theirs = OriginalCluster(
            folder / f"failover-pulsar-{number}", lib, brokers=2, session_timeout_ms=SESSION_TIMEOUT_MS
        )
        try:
            theirs.up()
            gaps.setdefault(theirs.name, []).append(gap_s(theirs.service_url, partial(kill_owner_of_theirs, theirs)))
        finally:
            theirs.down()
    for name, taken in gaps.items():
        console.print(f"failover {name:<7} {', '.join(f'{each:.2f} s' for each in taken)}")
        results.setdefault(name, {})["failover"] = {"seconds": statistics.median(taken)}


def judged_with_limits(figure: Figure, ours: float, ratio: float | None) -> tuple[str, str]:
    """Judge figures as `judged` does, except for those with limits of their own."""
    expected, verdict = judged(figure, ours, ratio)
    if figure.workload == "failover":
        return f"<= {FAILOVER_MAX_S:g} s", "ok" if ours <= FAILOVER_MAX_S else "SHORT"
    if figure.key == "cpu_us" and ours <= CPU_MAX_US:
        return expected, "ok"
    return expected, verdict


def repair_table(repairs: dict[str, Repair]) -> Table:
    table = Table(title="repair of ledgers")
    for column in ("who", "ledgers", "seconds", "ledgers/s", "shares of the workers"):
        table.add_column(column, justify="left" if column == "who" else "right")
    for name, found in repairs.items():
        shares = ", ".join(f"{share:.0%}" for share in found.shares) or "-"
        table.add_row(name, f"{found.ledgers}", f"{found.seconds:.1f}", f"{found.rate:.1f}", shares)
    return table


def main() -> int:
    """Run the command line; return the exit code."""
    return run_command(cluster, name="scripts/bench cluster", text=__doc__)


def cluster(
    rounds: Annotated[int, typer.Option()] = 3,
    seconds: Annotated[float, typer.Option(help="Measured seconds of each timed workload.")] = 5,
    warm_s: Annotated[float, typer.Option("--warm", help="Seconds of load before measuring.")] = 30,
    ledgers: Annotated[int, typer.Option(help="Ledgers to repair, of 100 x 1 KB.")] = 1000,
    only: Annotated[str, typer.Option(help="Parts, with commas.")] = ",".join(PARTS),
    no_pulsar: Annotated[bool, typer.Option("--no-pulsar")] = False,
    picture: Annotated[Path, typer.Option()] = Path("out/bench-cluster.png"),
) -> int:
    log.configure("error", sys.stderr)
    lib = None if no_pulsar else pulsar_jars()
    if lib is None:
        console.print("Apache Pulsar is left out (no Maven or Java, or --no-pulsar): only Quire is measured")
    parts = only.split(",")
    if unknown := {*parts} - {*PARTS}:
        raise typer.BadParameter(f"--only: there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    yardstick = factor(measure())
    folder = Path(tempfile.mkdtemp(prefix="quire-bench-"))
    results: Results = {"quire": {}}
    repairs: dict[str, Repair] = {}
    try:
        if "loads" in parts:
            with contextlib.ExitStack() as stack:
                ours = Quire(folder / "quire")
                stack.callback(ours.cluster.abandon)
                ours.cluster.up(console.print)
                clusters: list[Measured] = [ours]
                if lib is not None:
                    console.print("starting Apache Pulsar's cluster")
                    theirs = OriginalCluster(folder / "pulsar", lib)
                    stack.callback(theirs.down)
                    theirs.up()
                    clusters.append(theirs)
                results |= loads(clusters, rounds=rounds, seconds=seconds, warm_s=warm_s)
        if "failover" in parts:
            failover(folder, lib, rounds, results)
        if "repair" in parts and ledgers > 0:
            repairs = repair(folder, lib, ledgers, console.print)
            for name, who in (("quire", "Quire, one worker"), ("pulsar", "Apache BookKeeper, one worker")):
                if who in repairs:
                    results.setdefault(name, {})["repair"] = {"rate": repairs[who].rate}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    title = f"Quire beside Apache Pulsar {PULSAR_VERSION}: 1 broker, 3 bookies, ZooKeeper, 3/3/2, fsync on (medians)"
    report(title, FIGURES, results, picture, judged_with_limits)
    if repairs:
        console.print(repair_table(repairs))
    console.print(sentence(yardstick, factor(measure())), soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

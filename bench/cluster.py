"""`scripts/bench cluster`: one broker, three bookies and ZooKeeper, 3/3/2, fsync on: Quire's beside Apache Pulsar's, in one
interleaved run; and the repair of ledgers by Quire's auto recovery beside Apache BookKeeper's.

Each round runs each workload on one cluster and then on the other; medians over the rounds are compared. Both are warmed by
half a minute of mixed load first. CPU is that of all processes. Memory is without ZooKeeper.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table

from bench.local_cluster.cluster import LocalCluster
from bench.local_cluster.original import OriginalCluster
from bench.local_cluster.plan import Kind, Plan
from bench.picture import draw
from bench.procs import pss_mb
from bench.repair import Repair, repair
from bench.servers import pulsar_jars
from bench.vs import Figure, run_load
from bench.yardstick import factor, measure, sentence
from quire.service import log

console = Console()
SESSION_TIMEOUT_MS = 3000


class Measured(Protocol):
    """A cluster of either kind, as the measurements see it."""

    name: str

    @property
    def port(self) -> int: ...

    @property
    def pids(self) -> list[int]: ...

    @property
    def server_pids(self) -> list[int]: ...

    @property
    def service_url(self) -> str: ...


class Quire:
    """Ours."""

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

    @property
    def service_url(self) -> str:
        return self.cluster.service_url


def _figure(workload: str, title: str, key: str, unit: str, better: str, expected: float, scale: float = 1.0) -> Figure:
    return Figure(workload=workload, title=title, key=key, unit=unit, better=better, expected=expected, scale=scale)


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
FAILOVER_MAX_S = SESSION_TIMEOUT_MS / 1000 + 1.0


@dataclass(slots=True)
class Results:
    """cluster -> workload -> key -> median."""

    found: dict[str, dict[str, dict[str, float]]]

    def put(self, name: str, workload: str, **values: float) -> None:
        self.found.setdefault(name, {})[workload] = values

    def get(self, name: str, workload: str, key: str) -> float | None:
        return self.found.get(name, {}).get(workload, {}).get(key)


def loads(clusters: list[Measured], given: argparse.Namespace, results: Results) -> None:
    samples: dict[tuple[str, str], list[dict[str, float]]] = {}
    for cluster in clusters:
        if given.warm:
            console.print(f"warming {cluster.name} for {given.warm:.0f} s")
            run_load(cluster, "warm", given.warm)
    for number in range(given.rounds):
        for workload in LOADS:
            # Who goes first alternates, so that a drift of the machine favours nobody.
            for cluster in clusters if number % 2 == 0 else reversed(clusters):
                found = run_load(cluster, workload, given.seconds)
                samples.setdefault((cluster.name, workload), []).append(found)
                shown = "  ".join(f"{key} {value:,.4g}" for key, value in found.items())
                console.print(f"round {number + 1}/{given.rounds}  {workload:<11} {cluster.name:<7} {shown}")
    for (name, workload), taken in samples.items():
        results.put(name, workload, **{key: statistics.median(each[key] for each in taken) for key in taken[0]})
    for cluster in clusters:
        results.put(cluster.name, "memory", pss_mb=pss_mb(cluster.server_pids))


def gap_s(url: str, kill: Callable[[str], None], deadline_s: float = 120.0) -> float:
    """Seconds without a receipt when the broker that serves a topic is killed, as the official client sees it.
    `kill` is given the topic's name."""
    import pulsar

    client = pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    topic = f"persistent://public/default/failover-{time.time_ns()}"
    deadline = time.perf_counter() + deadline_s
    while True:  # one that listens is not always one that serves
        try:
            producer = client.create_producer(topic, batching_enabled=False, send_timeout_millis=0)
            break
        except pulsar.PulsarException:
            if time.perf_counter() > deadline:
                raise
            time.sleep(0.5)
    for _ in range(100):
        producer.send(b"x" * 1024)
    answered: list[float] = []
    failed: list[Any] = []

    def done(result: Any, _: Any) -> None:
        (answered if result == pulsar.Result.Ok else failed).append(time.perf_counter())

    kill(topic)
    killed = time.perf_counter()
    while not any(at > killed + 0.05 for at in answered):
        if failed or time.perf_counter() - killed > deadline_s:
            raise RuntimeError(f"no receipt within {deadline_s:g} s, {len(failed)} failures")
        producer.send_async(b"x" * 1024, done)
        time.sleep(0.02)
    client.close()
    return next(at for at in answered if at > killed + 0.05) - killed


def owner_port(web_port: int, topic: str) -> int:
    """Of the broker that serves a topic."""
    import httpx

    url = f"http://127.0.0.1:{web_port}/lookup/v2/topic/{topic.replace('://', '/')}"
    answer = httpx.get(url, timeout=30, follow_redirects=True).raise_for_status().json()
    return int(str(answer["brokerUrl"]).rpartition(":")[2])


def failover(folder: Path, lib: Path | None, rounds: int, results: Results) -> None:
    """Two brokers each, session timeout 3 s for both."""
    gaps: dict[str, list[float]] = {}
    for number in range(rounds):
        ours = Quire(folder / f"failover-quire-{number}", brokers=2, session_timeout_ms=SESSION_TIMEOUT_MS)
        try:
            ours.cluster.up()
            nodes = ours.cluster.nodes(Kind.BROKER)

            def kill(topic: str, ours: Quire = ours, nodes: Any = nodes) -> None:
                port = owner_port(nodes[0].ports[1], topic)
                ours.cluster.kill(next(node for node in nodes if node.port == port))

            gaps.setdefault(ours.name, []).append(gap_s(ours.service_url, kill))
        finally:
            ours.cluster.abandon()
        if lib is None:
            continue
        theirs = OriginalCluster(
            folder / f"failover-pulsar-{number}", lib, brokers=2, session_timeout_ms=SESSION_TIMEOUT_MS
        )
        try:
            theirs.up()

            def kill_theirs(topic: str, theirs: OriginalCluster = theirs) -> None:
                port = owner_port(theirs.web_port, topic)
                next(broker for broker in theirs.brokers if broker.port == port).kill()

            gaps.setdefault(theirs.name, []).append(gap_s(theirs.service_url, kill_theirs))
        finally:
            theirs.down()
    for name, taken in gaps.items():
        console.print(f"failover {name:<7} {', '.join(f'{each:.2f} s' for each in taken)}")
        results.put(name, "failover", seconds=statistics.median(taken))


def report(results: Results, repairs: dict[str, Repair], picture: Path) -> None:
    table = Table(title="Quire beside Apache Pulsar 4.2.4: 1 broker, 3 bookies, ZooKeeper, 3/3/2, fsync on (medians)")
    for column in ("figure", "unit", "Quire", "Pulsar", "ratio", "expected", ""):
        table.add_column(column, justify="left" if column in ("figure", "unit") else "right")
    rows: list[tuple[str, float, float, str]] = []
    for figure in FIGURES:
        ours = results.get("quire", figure.workload, figure.key)
        theirs = results.get("pulsar", figure.workload, figure.key)
        if ours is None:
            continue
        ratio = ours / theirs if theirs else None
        sign = ">=" if figure.better == "more" else "<="
        good = ratio is None or (ratio >= figure.expected if figure.better == "more" else ratio <= figure.expected)
        if figure.workload == "failover":
            good = ours <= FAILOVER_MAX_S
        elif figure.key == "cpu_us":
            good = good or ours <= CPU_MAX_US
        table.add_row(
            figure.title,
            figure.unit,
            f"{ours * figure.scale:,.2f}",
            f"{theirs * figure.scale:,.2f}" if theirs else "-",
            f"{ratio:.2f}" if ratio is not None else "-",
            f"<= {FAILOVER_MAX_S:g} s" if figure.workload == "failover" else f"{sign} {figure.expected:.2f}",
            "ok" if good else "SHORT",
        )
        if ratio is not None:
            rows.append((f"{figure.title}, {figure.unit}", ratio, figure.expected, figure.better))
    console.print(table)
    if repairs:
        console.print(repair_table(repairs))
    if rows:
        draw(rows, picture)
        console.print(f"picture: {picture}")


def repair_table(repairs: dict[str, Repair]) -> Table:
    table = Table(title="repair of ledgers")
    for column in ("who", "ledgers", "seconds", "ledgers/s", "shares of the workers"):
        table.add_column(column, justify="left" if column == "who" else "right")
    for name, found in repairs.items():
        shares = ", ".join(f"{share:.0%}" for share in found.shares) or "-"
        table.add_row(name, f"{found.ledgers}", f"{found.seconds:.1f}", f"{found.rate:.1f}", shares)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench cluster", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="measured seconds of each timed workload")
    parser.add_argument("--warm", type=float, default=30, help="seconds of load before measuring")
    parser.add_argument("--ledgers", type=int, default=1000, help="ledgers to be repaired, of 100 x 1 KB")
    parser.add_argument(
        "--only", default="loads,failover,repair", help="parts, with commas (default: loads,failover,repair)"
    )
    parser.add_argument("--no-pulsar", action="store_true")
    parser.add_argument("--picture", type=Path, default=Path("out/bench-cluster.png"))
    given = parser.parse_args()
    log.configure("error", sys.stderr)
    lib = None if given.no_pulsar else pulsar_jars()
    if lib is None:
        console.print("Apache Pulsar is left out (no Maven or Java, or --no-pulsar): only Quire is measured")
    parts = given.only.split(",")
    yardstick = factor(measure())
    folder = Path(tempfile.mkdtemp(prefix="quire-bench-"))
    results = Results({})
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
                loads(clusters, given, results)
        if "failover" in parts:
            failover(folder, lib, given.rounds, results)
        if "repair" in parts and given.ledgers > 0:
            repairs = repair(folder, lib, given.ledgers, console.print)
            for name, who in (("quire", "Quire, one worker"), ("pulsar", "Apache BookKeeper, one worker")):
                if who in repairs:
                    results.put(name, "repair", rate=repairs[who].rate)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report(results, repairs, given.picture)
    console.print(sentence(yardstick, factor(measure())), soft_wrap=True)


if __name__ == "__main__":
    main()

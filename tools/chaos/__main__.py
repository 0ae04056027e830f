"""Run a cluster under load by official clients, kill and suspend its processes, and check what the clients received.

The exit code is 0 if nothing was lost and every copy exists again at the end, 1 if not, or if the run was too weak to
prove anything, 2 if it cannot run. After a failure all files are kept in a folder.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from quire.service import log
from quire.service.programs.command_line import one_of, run_command
from tools.chaos import report
from tools.chaos.errors import ChaosError
from tools.chaos.run import RATE, RATE_MIN, TOPICS, Outcome, plan_of, run
from tools.chaos.schedule import Group, draw
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.errors import ClusterError

FAULTS_MIN_PER_MINUTE = 6


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    return run_command(chaos, argv, name="scripts/chaos", text=__doc__)


def chaos(
    minutes: Annotated[float, typer.Option(help="Minutes of load.")] = 5.0,
    seed: Annotated[int | None, typer.Option(help="Seed of the schedule.", show_default="random")] = None,
    topics: Annotated[int, typer.Option(help="Number of topics.")] = TOPICS,
    rate: Annotated[float, typer.Option(help="Messages per second over all topics.")] = RATE,
    rate_min: Annotated[
        float | None,
        typer.Option(help="Minimum receipts per second of a valid run.", show_default=f"{RATE_MIN:.0f}"),
    ] = None,
    faults: Annotated[int | None, typer.Option(help="Number of faults.", show_default="depends on the minutes")] = None,
    zookeepers: Annotated[int, typer.Option(help="Number of ZooKeeper servers: 1 or 3.")] = 3,
    secure: Annotated[
        bool, typer.Option("--secure", help="A cluster with TLS, authentication and authorization everywhere.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Folder of all files, which is kept.", show_default="a new one")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep data, logs and histories even after success.")] = False,
) -> int:
    one_of("--zookeepers", zookeepers, (1, 3))
    log.configure("error", sys.stderr)
    console = Console()
    if seed is None:
        seed = random.SystemRandom().randrange(1 << 31)
    seconds = minutes * 60
    # A single ZooKeeper has no others to replace it.
    without = () if zookeepers > 1 else (Group.ZOOKEEPER,)
    schedule = draw(seed, seconds, faults, without=without)
    named = folder is not None
    folder = folder or Path(tempfile.mkdtemp(prefix="quire-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()

    def say(text: str) -> None:
        console.print(f"{time.monotonic() - begun:6.1f} s  {text}", highlight=False, markup=False, soft_wrap=True)

    outcome = Outcome(seed=seed, seconds=seconds)
    code = 2
    cluster: LocalCluster | None = None
    try:
        say(f"seed {seed}: {len(schedule)} faults in {seconds:.0f} s")
        plan = plan_of(zookeepers=zookeepers, secure=secure)
        cluster = LocalCluster.make(folder / "cluster", plan, bound=True)
        cluster.up(say)
        run(cluster, folder, schedule, outcome, say, topics=topics, rate=rate)
        report.show(outcome, console)
        report.write(outcome, folder / "report.json")
        faults_min = min(len(schedule), int(FAULTS_MIN_PER_MINUTE * minutes))
        rate_min = min(RATE_MIN, 0.9 * rate) if rate_min is None else rate_min
        failures = outcome.failures(faults_min=faults_min, rate_min=rate_min)
        code = 1 if failures else 0
        for failure in failures:
            console.print(f"FAILED: {failure}", highlight=False, markup=False)
        if not failures:
            console.print(
                f"seed {seed}, {len(outcome.faults)} faults: 0 acknowledged lost, 0 order violations, "
                f"0 copies missing; {outcome.verdict.receipts} messages had a receipt",
                highlight=False,
                soft_wrap=True,
            )
    except (ChaosError, ClusterError) as error:
        print(f"scripts/chaos: {error}", file=sys.stderr)
        code = 1 if cluster is not None else 2
    finally:
        if cluster is not None:
            cluster.abandon()
        if code or keep or named:
            print(f"kept: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder)
    return code


if __name__ == "__main__":
    sys.exit(main())

"""Run a cluster under load by official clients, kill and suspend its processes, and check what the clients received.

The exit code is 0 if nothing was lost and every copy exists again at the end, 1 if not, or if the run was too weak to
prove anything, 2 if it cannot run. After a failure all files are kept in a folder.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from quire.service import log
from tools.chaos import report
from tools.chaos.errors import ChaosError
from tools.chaos.run import RATE, RATE_MIN, TOPICS, Outcome, plan_of, run
from tools.chaos.schedule import Group, draw
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.errors import ClusterError

FAULTS_MIN_PER_MINUTE = 6


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="scripts/chaos", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--minutes", type=float, default=5.0, help="minutes of load (default: 5)")
    made.add_argument("--seed", type=int, help="seed of the schedule (default: random)")
    made.add_argument("--topics", type=int, default=TOPICS, help=f"number of topics (default: {TOPICS})")
    made.add_argument(
        "--rate", type=float, default=RATE, help=f"messages per second over all topics (default: {RATE:.0f})"
    )
    made.add_argument(
        "--rate-min", type=float, help=f"minimum receipts per second of a valid run (default: {RATE_MIN:.0f})"
    )
    made.add_argument("--faults", type=int, help="number of faults (default: depends on the minutes)")
    made.add_argument(
        "--zookeepers", type=int, default=3, choices=(1, 3), help="number of ZooKeeper servers (default: 3)"
    )
    made.add_argument(
        "--secure", action="store_true", help="a cluster with TLS, authentication and authorization everywhere"
    )
    made.add_argument("--folder", type=Path, help="folder of all files, which is kept (default: a new one)")
    made.add_argument("--keep", action="store_true", help="keep data, logs and histories even after success")
    return made


def main(argv: list[str] | None = None) -> int:
    given = parser().parse_args(argv)
    log.configure("error", sys.stderr)
    console = Console()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1 << 31)
    seconds = given.minutes * 60
    # A single ZooKeeper has no others to replace it.
    without = () if given.zookeepers > 1 else (Group.ZOOKEEPER,)
    schedule = draw(seed, seconds, given.faults, without=without)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="quire-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()

    def say(text: str) -> None:
        console.print(f"{time.monotonic() - begun:6.1f} s  {text}", highlight=False, markup=False, soft_wrap=True)

    outcome = Outcome(seed=seed, seconds=seconds)
    code = 2
    cluster: LocalCluster | None = None
    try:
        say(f"seed {seed}: {len(schedule)} faults in {seconds:.0f} s")
        plan = plan_of(zookeepers=given.zookeepers, secure=given.secure)
        cluster = LocalCluster.make(folder / "cluster", plan, bound=True)
        cluster.up(say)
        run(cluster, folder, schedule, outcome, say, topics=given.topics, rate=given.rate)
        report.show(outcome, console)
        report.write(outcome, folder / "report.json")
        faults_min = min(len(schedule), int(FAULTS_MIN_PER_MINUTE * given.minutes))
        rate_min = min(RATE_MIN, 0.9 * given.rate) if given.rate_min is None else given.rate_min
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
        if code or given.keep or given.folder:
            print(f"kept: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder)
    return code


if __name__ == "__main__":
    sys.exit(main())

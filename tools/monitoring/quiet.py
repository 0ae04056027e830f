"""Run a quiet load on a cluster, scraped by a real Prometheus with the shipped rules, and fail if an alert fires.

The exit code is 0 if no alert fired, 1 if one did, 2 if the run is not valid: it cannot start, or a target was not
scraped, or messages were not consumed.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import trio
import typer

from quire.service import log
from quire.service.programs.command_line import run_command
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.errors import ClusterError
from tools.local_cluster.plan import HOST, Kind, Plan
from tools.local_cluster.ports import free_ports
from tools.monitoring.alert_table import ALERTS
from tools.monitoring.alerts import rules_text
from tools.monitoring.load import Counts, quiet_load
from tools.monitoring.prometheus import Prometheus, PrometheusError, prometheus

LOOK_S: Final = 5.0
PROGRESS_S: Final = 60.0
SETTLE_S: Final = 30.0
"""Time in which every target must have been scraped."""


def web_settings(port: int) -> dict[str, object]:
    """Return the keys that make a bookie or an auto recovery serve metrics on a port of this machine."""
    return {"httpServerEnabled": "true", "httpServerHost": HOST, "httpServerPort": port}


def scraped_cluster(folder: Path, plan: Plan) -> tuple[LocalCluster, dict[str, list[str]]]:
    """Create a cluster whose processes all serve metrics, without starting it; return its targets by job."""
    cluster = LocalCluster.make(folder, plan, bound=True)
    targets = {"quire-broker": [f"{HOST}:{node.ports[1]}" for node in cluster.nodes(Kind.BROKER)]}
    nodes = cluster.nodes(Kind.BOOKIE, Kind.RECOVERY)
    taken = [port for node in cluster.nodes() for port in node.ports]
    for node, port in zip(nodes, free_ports(len(nodes), taken), strict=True):
        conf = node.conf(folder)
        more = "".join(f"{key}={value}\n" for key, value in web_settings(port).items())
        conf.write_text(conf.read_text() + more)
        job = "quire-bookie" if node.kind is Kind.BOOKIE else "quire-autorecovery"
        targets.setdefault(job, []).append(f"{HOST}:{port}")
    return cluster, targets


def watch(asked: Prometheus, service_url: str, seconds: float) -> tuple[Counts, Mapping[str, int], set[str]]:
    """Run the load for so many seconds.

    Returns:
        What it did, how often each alert was seen firing, and the names of those that were pending at some time.
    """
    counts, firing, pending = Counts(), Counter[str](), set[str]()

    async def look() -> None:
        begun = shown = trio.current_time()
        while (now := trio.current_time()) < begun + seconds:
            await trio.sleep(LOOK_S)
            seen = await trio.to_thread.run_sync(asked.alerts, "firing")
            firing.update(labels["alertname"] for labels in seen)
            waiting = await trio.to_thread.run_sync(asked.alerts, "pending")
            pending.update(labels["alertname"] for labels in waiting)
            if now >= shown + PROGRESS_S:
                shown = now
                print(
                    f"{(now - begun) / 60:.0f} min: {counts.published} published, {counts.consumed} consumed, "
                    f"firing {dict(firing) or 'none'}, pending {sorted(pending) or 'none'}",
                    flush=True,
                )

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(quiet_load, service_url, counts)
            await look()
            nursery.cancel_scope.cancel()

    trio.run(main)
    return counts, firing, pending


def problems(down: Sequence[str], counts: Counts, seconds: float, rate: float = 40.0) -> list[str]:
    """Return the reasons why a run proves nothing."""
    found = [f"not scraped: {each}" for each in down]
    if counts.published < seconds * rate / 4:
        found.append(f"{counts.published} messages published in {seconds:g} s, less than a quarter of the load")
    if counts.consumed < counts.published * 0.9:
        found.append(f"{counts.consumed} of {counts.published} messages consumed")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    return run_command(quiet, arguments, name="scripts/quiet-alerts", text=__doc__)


def quiet(
    minutes: Annotated[float, typer.Argument(help="Minutes of load; 60 show that an hour is quiet.")],
    folder: Annotated[
        Path | None, typer.Option(help="Folder of all files, which is kept.", show_default="a new one")
    ] = None,
) -> int:
    program = shutil.which("prometheus")
    if program is None:
        print("prometheus is not on PATH: scripts/debian-packages prometheus installs it", file=sys.stderr)
        return 2
    log.configure("error", sys.stderr)
    is_new = folder is None
    folder = folder or Path(tempfile.mkdtemp(prefix="quiet-alerts-"))
    cluster, targets = scraped_cluster(folder / "cluster", Plan(brokers=2, recoveries=2))
    seconds = minutes * 60
    try:
        cluster.up(print)
        with prometheus(program, folder / "prometheus", targets, rules_text(ALERTS), interval="5s") as server:
            deadline = time.monotonic() + SETTLE_S
            while server.down() and time.monotonic() < deadline:
                time.sleep(0.5)
            counts, firing, pending = watch(server, cluster.service_url, seconds)
            found = problems(server.down(), counts, seconds)
    except (ClusterError, PrometheusError) as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        cluster.abandon()
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{minutes:g} min: {counts.published} published, {counts.consumed} consumed; {len(ALERTS)} alerts; "
        f"firing: {', '.join(sorted(firing)) or 'none'}; pending at some time: {', '.join(sorted(pending)) or 'none'}"
    )
    for each in found:
        print(f"not valid: {each}", file=sys.stderr)
    return 1 if firing else 2 if found else 0


if __name__ == "__main__":
    sys.exit(main())

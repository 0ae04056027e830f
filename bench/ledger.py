"""`scripts/bench ledger`: Quire's ledger client on three bookies, 3/3/2, fsync on: Quire's and Apache BookKeeper's in
interleaved rounds.

Then the ledger is read back in batches, and one bookie of Quire is made a hundred times slower."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import trio
import typer
from rich.console import Console
from rich.table import Table

from bench.bookies import Bookie, Cluster, apache_classes, cluster, zookeeper
from bench.links import flood
from bench.procs import cpu_s
from quire.ledger import open_client
from quire.servers.process import SWITCH_INTERVAL_S
from quire.service import log
from quire.service.programs.command_line import run_command
from quire.world.real import real_world

console = Console()
SIZE = 1024
WINDOW = 1000
RUN_S = 0.001
STOPPED_S = 0.099
"""A bookie that runs 1 ms of 100 is a hundred times slower."""


async def append(group: Cluster, seconds: float) -> dict[str, float]:
    """Return the append rate, and CPU of the three bookies per entry; then the speed at which a new client reads it
    back."""
    world = real_world()
    async with open_client(world, group.uri) as client:
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        before, begun = cpu_s(group.pids), time.perf_counter()
        count = await flood(writer, WINDOW, SIZE, seconds)
        found = {
            "append entries/s": count / (time.perf_counter() - begun),
            "CPU us of 3 bookies": (cpu_s(group.pids) - before) / count * 1e6,
        }
        await writer.close()
    async with open_client(world, group.uri) as client:
        reader = await client.open(writer.ledger_id, recover=False)
        begun = time.perf_counter()
        entry_id = 0
        while entry_id <= reader.last_entry_id:
            entry_id += len(await reader.read(entry_id, reader.last_entry_id, size_max=4 << 20))
        found["catch-up MB/s"] = entry_id * SIZE / (time.perf_counter() - begun) / 1e6
    return found


async def latencies(group: Cluster, seconds: float) -> dict[str, float]:
    """Return p99 of one append at a time, and of reads of single entries, in ms."""
    world = real_world()
    appends: list[float] = []
    reads: list[float] = []
    async with open_client(world, group.uri) as client:
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            begun = time.perf_counter()
            await writer.write(bytes(SIZE))
            appends.append(time.perf_counter() - begun)
        reader = await client.open(writer.ledger_id, recover=False)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            entry_id = len(reads) % (reader.last_entry_id + 1)
            begun = time.perf_counter()
            await reader.read(entry_id, entry_id)
            reads.append(time.perf_counter() - begun)
    return {"append p99 ms": p99_ms(appends), "read p99 ms": p99_ms(reads)}


def p99_ms(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) * 99 // 100] * 1e3


@contextlib.contextmanager
def slowed(bookie: Bookie) -> Iterator[None]:
    """Slow a bookie down: it runs RUN_S of every RUN_S + STOPPED_S."""
    over = threading.Event()

    def pulse() -> None:
        while not over.wait(RUN_S):
            os.kill(bookie.process.pid, signal.SIGSTOP)
            over.wait(STOPPED_S)
            os.kill(bookie.process.pid, signal.SIGCONT)

    thread = threading.Thread(target=pulse)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def main() -> int:
    """Run the command line; return the exit code."""
    return run_command(ledger, name="scripts/bench ledger", text=__doc__)


def ledger(
    rounds: Annotated[int, typer.Option()] = 3,
    seconds: Annotated[float, typer.Option(help="Measured seconds of each load.")] = 5,
    warm: Annotated[float, typer.Option(help="Seconds of load before measuring.")] = 20,
    no_apache: Annotated[bool, typer.Option("--no-apache")] = False,
    data_folder: Annotated[
        Path | None, typer.Option("--folder", help="Folder of the data; its disk is measured.")
    ] = None,
) -> int:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    log.configure("error")
    classes = None if no_apache else apache_classes()
    folder = Path(tempfile.mkdtemp(prefix="quire-bench-", dir=data_folder))
    found: dict[str, dict[str, list[float]]] = {}
    try:
        with contextlib.ExitStack() as stack:
            port = stack.enter_context(zookeeper(folder / "zookeeper"))
            groups = [stack.enter_context(cluster("quire", folder, port, 3))]
            if classes is not None:
                groups.append(stack.enter_context(cluster("apache", folder, port, 3, classes=classes)))
            for group in groups:
                if warm:
                    trio.run(append, group, warm)
            for _ in range(rounds):
                for group in groups:
                    for figure, value in trio.run(append, group, seconds).items():
                        found.setdefault(figure, {}).setdefault(group.name, []).append(value)
            all_well = trio.run(partial(latencies, groups[0], seconds))
            with slowed(groups[0].bookies[0]):
                one_slow = trio.run(partial(latencies, groups[0], seconds))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table = Table(title=f"Three bookies, 3/3/2, 1 KB, window {WINDOW}, fsync on, medians of {rounds} rounds")
    for column in ("figure", "quire", "apache", "quire / apache"):
        table.add_column(column)
    for figure, values in found.items():
        ours = statistics.median(values["quire"])
        theirs = statistics.median(values["apache"]) if "apache" in values else None
        table.add_row(
            figure, f"{ours:,.1f}", f"{theirs:,.1f}" if theirs else "", f"{ours / theirs:.2f}" if theirs else ""
        )
    console.print(table)
    for figure, value in all_well.items():
        slow = one_slow[figure]
        console.print(f"{figure}: {value:.2f}, with one bookie 100x slower {slow:.2f} ({slow / value:.2f}x)")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`scripts/bench bookie`: one bookie process under a raw pipelined generator (version 2, fsync on, 10 ledgers), beside
one of Apache BookKeeper in interleaved rounds; then random reads of entries that are in none of its caches.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from struct import Struct
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rocksdict import AccessType, Options, Rdict

from bench.bookies import Cluster, apache_classes, cluster, restart, zookeeper
from bench.procs import cpu_s
from bench.raw_bookie import LEDGERS, Filled, flood, random_reads
from bench.yardstick import factor, measure, sentence
from quire.service.programs.command_line import run_command

console = Console()
LOADS = (("1 KB", 1024, 1000), ("64 KB", 65536, 100))
"""Name, bytes, window."""
READS = 100_000
THREADS = 8
SMALL_CACHES = {"dbStorage_writeCacheMaxSizeMb": 16, "dbStorage_readAheadCacheMaxSizeMb": 1}
_LOCATION_KEY = Struct("!qq")


def drop_page_cache(folder: Path) -> None:
    """Make the kernel drop the clean pages of every file in the folder."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)


def fill_page_cache(folder: Path) -> None:
    """Read every file in the folder once: a kernel may have dropped pages of its own accord."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                while file.read(1 << 20):
                    pass


def measure_adds(group: Cluster, first_ledger: int, size: int, window: int, seconds: float) -> dict[str, float]:
    bookie = group.bookies[0]
    before = cpu_s(bookie.pids)
    filled, took = flood(bookie.port, first_ledger, size, window, seconds)
    count = filled.entries * LEDGERS
    return {"entries/s": count / took, "CPU us": (cpu_s(bookie.pids) - before) / count * 1e6}


def bare_reads(folder: Path, filled: Filled, count: int) -> float:
    """Return the rate of the same reads by THREADS threads of RocksDB get and pread alone. The bookie is stopped."""
    current = folder / "ledgers/current"
    options = Options(raw_mode=True)
    rows = Rdict(str(current / "locations"), options, access_type=AccessType.read_only())
    files: dict[int, int] = {}
    for path in current.glob("*.log"):
        with contextlib.suppress(ValueError):
            files[int(path.stem, 16)] = os.open(path, os.O_RDONLY)
    places = random.Random(2).sample(range(LEDGERS * filled.entries), min(count, LEDGERS * filled.entries))

    def loop(part: list[int]) -> None:
        for place in part:
            value = rows.get(_LOCATION_KEY.pack(filled.first_ledger + place % LEDGERS, place // LEDGERS))
            assert value is not None
            location = int.from_bytes(value, "big")
            os.pread(files[location >> 32], 32 + filled.size, location & 0xFFFFFFFF)

    threads = [threading.Thread(target=loop, args=(places[i::THREADS],)) for i in range(THREADS)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - begun
    rows.close()
    for file in files.values():
        os.close(file)
    return len(places) / took


def reads(folder: Path, zookeeper_port: int, seconds: float, count: int) -> dict[str, float]:
    """Return random reads of 1 KB entries per second: with the files in the page cache, without, and the bare loop
    without."""
    found: dict[str, float] = {}
    with cluster("quire-reads", folder, zookeeper_port, 1) as group:
        filled, _ = flood(group.bookies[0].port, 1, 1024, 1000, seconds)
        bookie = restart(group, 0, SMALL_CACHES)  # empty caches, and little room in them
        fill_page_cache(bookie.folder)
        found["reads/s, page cache"] = count / random_reads(bookie.port, filled, 1000, count)
        drop_page_cache(bookie.folder)
        found["reads/s, page cache dropped"] = count / random_reads(bookie.port, filled, 1000, count)
    drop_page_cache(bookie.folder)
    found["bare loop/s, page cache dropped"] = bare_reads(bookie.folder, filled, count)
    return found


def main() -> int:
    """Run the command line; return the exit code."""
    return run_command(adds_and_reads, name="scripts/bench bookie", text=__doc__)


def adds_and_reads(
    rounds: Annotated[int, typer.Option()] = 3,
    seconds: Annotated[float, typer.Option(help="Measured seconds of each load.")] = 5,
    warm: Annotated[float, typer.Option(help="Seconds of load before measuring.")] = 20,
    fill: Annotated[float, typer.Option(help="Seconds of adds before the reads.")] = 10,
    read_count: Annotated[int, typer.Option("--reads")] = READS,
    no_apache: Annotated[bool, typer.Option("--no-apache")] = False,
    data_folder: Annotated[
        Path | None, typer.Option("--folder", help="Folder of the data; its disk is measured.")
    ] = None,
) -> int:
    classes = None if no_apache else apache_classes()
    folder = Path(tempfile.mkdtemp(prefix="quire-bench-", dir=data_folder))
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    yardstick = factor(measure())
    try:
        with contextlib.ExitStack() as stack:
            port = stack.enter_context(zookeeper(folder / "zookeeper"))
            groups = [stack.enter_context(cluster("quire", folder, port, 1))]
            if classes is not None:
                groups.append(stack.enter_context(cluster("apache", folder, port, 1, classes=classes)))
            for group in groups:
                if warm:
                    measure_adds(group, 1, 1024, 1000, warm)
            for number in range(rounds):
                for load, (name, size, window) in enumerate(LOADS):
                    for group in groups:
                        first = 1000 * (number + 1) + 100 * load
                        for figure, value in measure_adds(group, first, size, window, seconds).items():
                            found.setdefault((name, group.name), {}).setdefault(figure, []).append(value)
            for group in groups:
                for bookie in group.bookies:
                    bookie.stop()
            read = reads(folder, port, fill, read_count)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table = Table(title=f"One bookie, fsync on, medians of {rounds} rounds")
    for column in ("add", "bookie", "entries/s", "CPU us per entry"):
        table.add_column(column)
    for (name, kind), figures in found.items():
        medians = [statistics.median(figures[figure]) for figure in ("entries/s", "CPU us")]
        table.add_row(name, kind, f"{medians[0]:,.0f}", f"{medians[1]:.2f}")
    console.print(table)
    for name, value in read.items():
        console.print(f"{name}: {value:,.0f}")
    ratio = read["reads/s, page cache dropped"] / read["bare loop/s, page cache dropped"]
    console.print(f"beside the bare loop: {ratio:.2f}x")
    console.print(sentence(yardstick, factor(measure())), soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`scripts/bench links`: one writer and one bookie, in one process or with the bookie as a child process on loopback.

The same ledger client, codec, session and storage in both cases; fsync on. Decides docs/adr/0004.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import trio
import typer
from rich.console import Console
from rich.table import Table

from bench.load import percentiles
from bench.procs import cpu_s
from bookie.bookie import open_bookie
from bookie.config import BookieConfig
from bookie.server import serve_bookie
from bookie.sessions.session import BookieSession
from quire.ledger.bookies.link_local import LocalLink
from quire.ledger.bookies.link_tcp import TcpLink
from quire.ledger.client import LedgerClient
from quire.ledger.opening import open_ledger_client
from quire.ledger.writing.writer import LedgerWriter
from quire.metadata.ledger_ids import BlockLedgerIds
from quire.metadata.ledgers import LedgerManager, initialize_layout
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.servers.process import SWITCH_INTERVAL_S
from quire.service import log
from quire.service.programs.command_line import run_command
from quire.world.doors import World
from quire.world.real import real_world

BOOKIE_ID = "127.0.0.1:{port}"
RUN = 100
"""Entries appended at a time."""


def config(folder: Path, port: int) -> BookieConfig:
    return BookieConfig(
        bookie_id=BOOKIE_ID.format(port=port),
        port=port,
        journal_directories=(str(folder / "journal"),),
        ledger_directories=(str(folder / "ledgers"),),
    )


async def _metadata(world: World) -> MemoryStore:
    store = MemoryStore(MemoryTree())
    await initialize_layout(store, rng=world.rng)
    return store


def child(folder: Path, port: int) -> None:
    """Run the bookie as a process of its own."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    log.configure("error")

    async def main() -> None:
        world = real_world()
        store = await _metadata(world)
        async with open_bookie(world, config(folder, port), store) as bookie:
            await serve_bookie(world, bookie, store, bind_address="127.0.0.1", stop=trio.Event())

    trio.run(main)


async def flood(writer: LedgerWriter, window: int, size: int, seconds: float) -> int:
    """Append runs with at most `window` entries unconfirmed; return how many were confirmed."""
    payload = b"x" * size
    moved = trio.Event()

    def confirmed(first: int, last: int) -> None:
        moved.set()

    writer.on_confirmed = confirmed
    begin = writer.last_confirmed
    end = time.perf_counter() + seconds
    run = [payload] * min(RUN, window)
    while time.perf_counter() < end or writer.last_confirmed < writer.last_pushed:
        while time.perf_counter() < end and writer.last_pushed - writer.last_confirmed + len(run) <= window:
            writer.append(run)
        moved = trio.Event()
        if writer.last_confirmed < writer.last_pushed:
            await moved.wait()
    return writer.last_confirmed - begin


async def one_by_one(writer: LedgerWriter, seconds: float) -> list[float]:
    taken: list[float] = []
    end = time.perf_counter() + seconds
    done = trio.Event()
    writer.on_confirmed = lambda first, last: done.set()
    while time.perf_counter() < end:
        begin = time.perf_counter()
        done = trio.Event()
        writer.append([b"x" * 1024])
        await done.wait()
        taken.append(time.perf_counter() - begin)
    return taken


async def measure(client: LedgerClient, pids: list[int], seconds: float) -> dict[str, float]:
    writer = await client.create()
    await flood(writer, 1000, 1024, min(1.0, seconds))
    found: dict[str, float] = {}
    for name, size in (("1 KB", 1024), ("100 B", 100)):
        cpu, begin = cpu_s(pids), time.perf_counter()
        count = await flood(writer, 1000, size, seconds)
        found[f"{name}, window 1000: k entries/s"] = count / (time.perf_counter() - begin) / 1e3
        found[f"{name}, window 1000: CPU us, both sides"] = (cpu_s(pids) - cpu) / count * 1e6
    latencies = percentiles(await one_by_one(writer, seconds))
    found["one at a time: p50 ms"] = latencies["p50_ms"]
    found["one at a time: p99 ms"] = latencies["p99_ms"]
    await writer.close()
    return found


async def in_process(folder: Path, seconds: float) -> dict[str, float]:
    world = real_world()
    store = await _metadata(world)
    manager = LedgerManager(store, ids=BlockLedgerIds(store), rng=world.rng)
    async with (
        open_bookie(world, config(folder, 3181), store) as bookie,
        open_ledger_client(
            world, manager, lambda _: LocalLink(partial(BookieSession, bookie)), lambda: [BOOKIE_ID.format(port=3181)]
        ) as client,
    ):
        return await measure(client, [os.getpid()], seconds)


async def with_child(port: int, pid: int, seconds: float) -> dict[str, float]:
    world = real_world()
    store = await _metadata(world)
    manager = LedgerManager(store, ids=BlockLedgerIds(store), rng=world.rng)
    while True:
        try:
            (await world.network.connect("127.0.0.1", port)).close()
            break
        except OSError:
            await trio.sleep(0.02)
    async with (
        trio.open_nursery() as nursery,
        open_ledger_client(
            world,
            manager,
            partial(TcpLink, world.network, nursery),
            lambda: [BOOKIE_ID.format(port=port)],
        ) as client,
    ):
        found = await measure(client, [os.getpid(), pid], seconds)
        nursery.cancel_scope.cancel()
    return found


def main() -> int:
    """Run the command line; return the exit code."""
    return run_command(links, name="scripts/bench links", text=__doc__)


def links(
    seconds: Annotated[float, typer.Option()] = 3,
) -> int:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    log.configure("error")
    folder = Path(tempfile.mkdtemp(prefix="quire-bench-"))
    port = 30_000 + os.getpid() % 20_000
    process = multiprocessing.get_context("spawn").Process(target=child, args=(folder / "child", port))
    process.start()
    try:
        assert process.pid is not None
        apart = trio.run(with_child, port, process.pid, seconds)
    finally:
        process.kill()
        process.join()
    together = trio.run(in_process, folder / "local", seconds)
    shutil.rmtree(folder, ignore_errors=True)
    table = Table(title="One writer, one bookie, fsync on")
    for column in ("figure", "in process", "child process"):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for name, value in together.items():
        table.add_row(name, f"{value:.2f}", f"{apart[name]:.2f}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

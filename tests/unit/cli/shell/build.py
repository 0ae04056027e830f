"""The shell in tests: on a metadata store in memory, with its output; and with bookies on a simulated host."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import trio

from bookie.bookie import Bookie, open_bookie
from bookie.config import BookieConfig
from bookie.server import serve_bookie
from quire.cli.shell.arguments import LedgerIdFormat, parse
from quire.cli.shell.context import Shell
from quire.cli.shell.entry_text import EntryFormat
from quire.cli.shell.main import COMMANDS, run_shell
from quire.cli.shell.output import Output
from quire.metadata.ledgers import initialize_layout
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import MetadataStore
from quire.servers.cluster_config import SHELL, ClusterConfig
from quire.world.doors import World
from simulation.machines.world import in_world


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def told(self) -> str:
        """Return the exit code if it is not 0, the output, and each line of standard error behind a `!`."""
        errors = "".join(f"! {line.strip()}\n" for line in self.err.splitlines())
        return (f"exit {self.code}\n" if self.code else "") + self.out + errors

    @property
    def values(self) -> list[dict[str, Any]]:
        """Return the values printed with --json."""
        return [json.loads(line) for line in self.out.splitlines()]


class MemoryCluster:
    """A metadata service in memory, named in the configuration."""

    def __init__(self, folder: Path, *, root: str = "/bk/ledgers") -> None:
        self.tree = MemoryTree()
        self.root = root
        self.uri = f"zk+hierarchical://zk1:2181{root}"
        self.conf = folder / "bk_server.conf"
        self.conf.write_text(f"metadataServiceUri={self.uri}\n")

    def do(self, job: Callable[[MemoryStore], Awaitable[Any]]) -> Any:
        """Run a job with a session of its own, which ends with the job."""

        async def main() -> Any:
            store = MemoryStore(self.tree)
            try:
                return await job(store)
            finally:
                await store.aclose()

        return trio.run(main)

    async def open(self, world: World, config: ClusterConfig) -> MetadataStore:
        return MemoryStore(self.tree)

    def shell(self, *words: str, answers: str = "") -> Ran:
        """Run `quire shell -conf FILE words...` with these lines on standard input."""
        out, err = io.StringIO(), io.StringIO()
        given = ["-conf", str(self.conf), *words]
        code = run_shell(given, out=out, err=err, stdin=io.StringIO(answers), environment={}, open_store=self.open)
        return Ran(code, out.getvalue(), err.getvalue())


@dataclass
class LiveCluster:
    """Bookies b1, b2 ... on one simulated host, and a shell for them."""

    world: World
    tree: MemoryTree
    bookies: dict[str, Bookie]
    stops: dict[str, trio.Event]
    config: ClusterConfig
    ports: dict[str, int]

    def store(self) -> MemoryStore:
        return MemoryStore(self.tree)

    def port(self, name: str) -> int:
        """Return the port on which a bookie listens."""
        return self.ports[name]

    def shell(self, output: Output) -> Shell:
        """Return a shell without a user who could answer questions."""

        async def open_store(world: World, config: ClusterConfig) -> MetadataStore:
            return self.store()

        return Shell(
            world=self.world,
            config=self.config,
            output=output,
            ask=lambda question: False,
            open_store=open_store,
            ledger_ids=LedgerIdFormat.LONG,
            entries=EntryFormat.STRING,
        )

    async def run(self, *words: str) -> Ran:
        """Run a command. What it raises is raised."""
        command = COMMANDS[words[0]]
        as_json = "--json" in words
        out, err = io.StringIO(), io.StringIO()
        shell = self.shell(Output(out, err, as_json=as_json))
        rest = [word for word in words[1:] if word != "--json"]
        code = await command.run(shell, parse(command.options, rest, operands=command.operands))
        return Ran(code, out.getvalue(), err.getvalue())


@asynccontextmanager
async def live(world: World, count: int) -> AsyncIterator[LiveCluster]:
    tree = MemoryTree()
    await initialize_layout(MemoryStore(tree), rng=world.rng)
    config = SHELL.build({"metadataServiceUri": "zk+hierarchical://zk1:2181/ledgers", "bookieId": "b1"})
    cluster = LiveCluster(world, tree, {}, {}, config, {})
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(trio.open_nursery())
        for number in range(1, count + 1):
            name = f"b{number}"
            bookie_config = replace(
                BookieConfig(),
                bookie_id=name,
                port=0,
                journal_directories=(f"/{name}/journal",),
                ledger_directories=(f"/{name}/ledgers",),
                journal_prealloc_mb=1,
            )
            store = MemoryStore(tree)
            bookie = await stack.enter_async_context(open_bookie(world, bookie_config, store))
            stop = trio.Event()
            serve = partial(serve_bookie, world, bookie, store, bind_address="127.0.0.1", stop=stop)
            cluster.ports[name] = (await nursery.start(serve, name=name))[1]
            cluster.bookies[name], cluster.stops[name] = bookie, stop
        yield cluster
        for stop in cluster.stops.values():
            stop.set()


@asynccontextmanager
async def with_bookies(*, count: int = 3, seed: int = 1) -> AsyncIterator[LiveCluster]:
    async with in_world(seed) as world, live(world, count) as cluster:
        yield cluster

"""The main paths as files: the functions of Quire, with their files, that run for one publish, dispatch,
acknowledgement, ledger recovery and range of Spark.

A standalone server runs on a simulated machine, so the same seed gives the same calls in the same order. Each path is
recorded when the topic is warm, without the work that only the first message of a topic causes. `docs/paths` has the
paths, and `tests/unit/test_paths.py` compares; after an intended change, write them again and review the diff:

    python -m tests.support.paths --write
"""

from __future__ import annotations

import dis
import gc
import sys
import tomllib
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from types import CodeType, FrameType, MappingProxyType
from typing import Annotated, Any

import trio
import typer

from quire.client.client import Client, open_client
from quire.ledger.reading import opened
from quire.ledger.recovery.recovery import recover
from quire.servers.addresses import Addresses
from quire.servers.standalone.config import STANDALONE
from quire.servers.standalone.process import run_standalone
from quire.service.programs.command_line import run_command
from quire.spark.options.parse import Options
from quire.spark.planning.ranges import LedgerRange, TopicRange
from quire.spark.reading import scan
from quire.spark.reading.columns import Columns
from quire.spark.reading.schema import NAMES
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.doors import World
from simulation import run
from simulation.common.patching import patched
from simulation.common.pulsar_client import Connection, Message
from simulation.machines.scheduler import HOST
from simulation.machines.world import Universe

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "paths"
SEED = 7
MESSAGES = ("publish", "dispatch", "acknowledgement")
"""Paths of a message, in the order in which they are recorded."""
NO_SECURITY: Mapping[str, Any] = MappingProxyType({})
SERVER = "server"
SPARK = "spark"
PORT = 6650
TOPIC = "persistent://public/default/a"
OTHER = "persistent://public/default/b"
ROOMS = ("autorecovery", "bookie", "broker", "cursors", "managed_ledger", "quire")
LOG = "quire/service/log.py"
"""File that is not recorded: its calls depend on earlier lines of the process's log."""
INLINED = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))
"""Names of code without frames of its own in some Python versions: most of them from 3.12 on."""
WARM = 20
"""Messages published before the first path: more than a broker reads in full before it knows what the metadata of a
producer look like (`EntryFeatures`).
"""
SETTLED_S = 0.5
"""Virtual seconds after which earlier work has ended."""


@dataclass(frozen=True, slots=True)
class Call:
    """One line of a path. `resumed`: a waiting task continues; its name is shown, but it is no call."""

    depth: int
    function: str
    file: str
    floor: str
    resumed: bool


@lru_cache
def floors() -> list[str]:
    """Packages with a floor of their own, as the import contracts name them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["type"] == "layers")
    return [name.strip() for layer in layers for name in layer.split("|")]


def floor_of(file: str) -> str:
    """Return the floor of a file: its package in the import contracts.

    >>> floor_of("quire/ledger/writing/appender.py"), floor_of("broker/output.py")
    ('quire.ledger', 'broker')
    """
    module = file.removesuffix(".py").replace("/", ".")
    return next((each for each in floors() if module == each or module.startswith(f"{each}.")), "")


@dataclass(frozen=True, slots=True)
class Known:
    """A code object: its file from the root of the tree ("": not of ours, or no call in every Python), and where a
    frame stands when the function is called: at its first RESUME. A later one is a coroutine that goes on."""

    code: CodeType
    file: str
    begin: int


_known: dict[int, Known] = {}
"""By id: equal code of two files is the same key to a dict."""


def known(code: CodeType) -> Known:
    found = _known.get(id(code))
    if found is None:
        begin = next((each.offset for each in dis.get_instructions(code) if each.opname.startswith("RESUME")), 0)
        found = _known[id(code)] = Known(code, _file_of(code), begin)
    return found


def _file_of(code: CodeType) -> str:
    path = Path(code.co_filename)
    if code.co_name in INLINED or not path.is_relative_to(ROOT) or "_pb2" in path.name:
        return ""
    file = path.relative_to(ROOT).as_posix()
    if file == LOG:
        return ""
    return file if file.split("/")[0] in ROOMS else ""


class Recorder:
    """Calls on one simulated host, from `recording` on; with `begin`, from the first call of that function on."""

    def __init__(self, host: str, begin: str = "") -> None:
        self.calls: list[Call] = []
        self._host = host
        self._begin = begin
        self._stack: list[tuple[CodeType, bool]] = []
        """Running functions of Quire, of other hosts too, and whether each has a line."""
        self._foreign = False
        """True while the stack is another host's."""

    @contextmanager
    def recording(self) -> Iterator[None]:
        gc.collect()
        gc.disable()  # a finalizer would run wherever memory happens to be short
        sys.setprofile(self._event)
        try:
            yield
        finally:
            sys.setprofile(None)
            gc.enable()

    def _event(self, frame: FrameType, event: str, _: object) -> None:
        if event not in ("call", "return"):
            return
        code = frame.f_code
        found = known(code)
        if not found.file:
            return
        stack = self._stack
        if event == "return":
            if stack and stack[-1][0] is code:  # else it was called before the recording began
                stack.pop()
            return
        if not stack:
            self._foreign = HOST.get() != self._host
        begun = frame.f_lasti <= found.begin
        if begun and not self._foreign and (not self._begin or self._begin == code.co_qualname):
            self._begin = ""
            for depth, (above, has_line) in enumerate(stack):
                if not has_line:
                    self._add(depth, above, resumed=True)
                    stack[depth] = (above, True)
            self._add(len(stack), code, resumed=False)
            stack.append((code, True))
        else:
            stack.append((code, False))

    def _add(self, depth: int, code: CodeType, *, resumed: bool) -> None:
        file = known(code).file
        self.calls.append(Call(depth, code.co_qualname, file, floor_of(file), resumed))


def text_of(calls: list[Call]) -> str:
    """Return the text of a path in its file."""
    begun = [call for call in calls if not call.resumed]
    lines = [f"{len(begun)} calls in {len({call.file for call in begun})} files"]
    for call in calls:
        mark = "... " if call.resumed else ""
        lines.append(f"{'  ' * call.depth}{mark}{call.function}  {call.file}  {call.floor}")
    return "\n".join(lines) + "\n"


class Rig:
    """A standalone server on a simulated machine, and clients on others."""

    def __init__(self, universe: Universe, security: Mapping[str, Any], token: bytes) -> None:
        """`security`: keys of the server's configuration; `token`: of the clients."""
        self.universe = universe
        self._security = security
        self._token = token
        self.host = universe.host(SERVER)
        self.ready = trio.Event()
        self.paths: dict[str, list[Call]] = {}

    async def _serve(self, world: World, stop: trio.Event) -> None:
        def ready(_: Addresses) -> None:
            self.ready.set()

        keys = {"brokerServicePort": PORT, "bindAddress": SERVER, "advertisedAddress": SERVER, **self._security}
        config = STANDALONE.build(keys)
        await run_standalone(world, config, data_dir="/data", ready=ready, stop=stop, http=False)

    async def start(self) -> None:
        self.ready = trio.Event()
        self.host.start(self._serve)
        await self.ready.wait()

    async def kill(self) -> None:
        await self.host.crash(lose_unsynced=False)
        await self.host.wait_down()

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection, None]:
        """Open a client's connection."""
        world = self.universe.host(f"client {len(self.universe.hosts)}").world(self.universe.nursery)
        connection = await Connection.open(world, SERVER, PORT)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.run, name="client")
            await connection.handshake(self._token)
            yield connection
            connection.close()

    @contextmanager
    def record(self, name: str, *, host: str = SERVER, begin: str = "") -> Iterator[None]:
        recorder = Recorder(host, begin)
        with recorder.recording():
            yield
        self.paths[name] = recorder.calls


def place_of(message: Message) -> tuple[int, int]:
    return message.ledger_id, message.entry_id


async def answered(condition: Callable[[], object], connection: Connection) -> None:
    while not condition():
        await connection.changed()


def has_receipts(connection: Connection, count: int) -> bool:
    return len(connection.receipts) >= count


async def publish(rig: Rig, connection: Connection) -> None:
    """Record one SEND until its receipt."""
    await connection.producer(TOPIC, 0, "p")
    for number in range(WARM):
        connection.publish(0, "p", number, [("", b"warm")])
        await answered(partial(has_receipts, connection, number + 1), connection)
    await trio.sleep(SETTLED_S)
    with rig.record("publish"):
        connection.publish(0, "p", WARM, [("", b"x" * 100)])
        await answered(lambda: len(connection.receipts) > WARM, connection)


async def dispatch_and_acknowledge(rig: Rig, connection: Connection) -> None:
    """Record a dispatch, from the confirmation of an entry to an Exclusive consumer, and its ACK until the answer."""
    await connection.subscribe(TOPIC, "s", 1, pb.CommandSubscribe.Exclusive)
    connection.flow(1, 1000)
    await answered(lambda: len(connection.messages) == WARM + 1, connection)
    for _, message in list(connection.messages)[:3]:
        await connection.ack(1, [place_of(message)])
    await trio.sleep(SETTLED_S)
    with rig.record("dispatch", begin="Topic._entries_confirmed"):
        connection.publish(0, "p", WARM + 1, [("", b"x" * 100)])
        await answered(lambda: len(connection.messages) == WARM + 2, connection)
    await trio.sleep(SETTLED_S)
    with rig.record("acknowledgement"):
        await connection.ack(1, [place_of(connection.messages[3][1])])


async def range_of_spark(rig: Rig, connection: Connection) -> None:
    """Record a planned range until its record batches are made, with a connected client."""
    place = place_of(connection.messages[0][1])
    world = rig.universe.host(SPARK).world(rig.universe.nursery)
    done = trio.Event()

    async def read() -> None:
        HOST.set(SPARK)
        async with open_client(world, f"pulsar://{SERVER}:{PORT}") as client:
            work = TopicRange(partition=TOPIC, ranges=(LedgerRange(place[0], 0, 3),))
            for _ in range(2):
                rows = 0
                await trio.sleep(SETTLED_S)
                with patched([(scan, "runtime", lambda: _Runtime(client))]), rig.record("spark-range", host=SPARK):
                    ranged = scan.RangeScan(work, Options.parse({"topic": TOPIC}, use="batch"), Columns(NAMES, TOPIC))
                    while (batch := await ranged.next()) is not None:
                        rows += batch.num_rows
                    await ranged.close()
                assert rows == 4
        done.set()

    rig.universe.nursery.start_soon(read, name="spark")
    await done.wait()


class _Runtime:
    """Replacement of the loop of an executor's process: the current loop."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def lease(self, service_url: str, options: object) -> _Runtime:
        return self

    def release(self) -> None: ...


async def recovery(rig: Rig) -> None:
    """Record the recovery of a ledger whose writer was killed, from its begin until the close."""
    await rig.kill()
    await rig.start()

    async def recorded(*arguments: Any) -> object:
        with rig.record("recovery"):
            return await recover(*arguments)

    await trio.sleep(SETTLED_S)
    async with rig.connection() as connection:
        with patched([(opened, "recover_ledger", recorded)]):
            await connection.producer(OTHER, 0, "p")


def record(
    *, only: Collection[str] = (), security: Mapping[str, Any] = NO_SECURITY, token: bytes = b""
) -> dict[str, str]:
    """Return the texts by name of the path.

    `only`: the first of MESSAGES, or all of them; empty: all paths.
    `security`: keys of the server's configuration; `token`: of the clients."""

    async def main(universe: Universe) -> dict[str, list[Call]]:
        rig = Rig(universe, security, token)
        await rig.start()
        async with rig.connection() as connection:
            await publish(rig, connection)
            if only == MESSAGES[:1]:
                return rig.paths
            await dispatch_and_acknowledge(rig, connection)
            if only:
                return rig.paths
            await range_of_spark(rig, connection)
            await connection.producer(OTHER, 1, "q")
            for number in range(3):
                connection.publish(1, "q", number, [("", b"x")])
            await answered(lambda: len(connection.receipts) == WARM + 5, connection)
        await recovery(rig)
        return rig.paths

    return {name: text_of(calls) for name, calls in sorted(run(SEED, main).items())}


def main() -> int:
    """Run the command line; return the exit code."""
    return run_command(paths, name="python -m tests.support.paths", text=paths.__doc__)


def paths(
    write: Annotated[bool, typer.Option("--write", help="Write docs/paths anew.")] = False,
) -> int:
    """Write the files, or print the heads of the recorded paths."""
    for name, text in record().items():
        if write:
            FOLDER.mkdir(exist_ok=True)
            (FOLDER / f"{name}.txt").write_text(text)
        print(f"{name}: {text.splitlines()[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

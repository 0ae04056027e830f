"""A write-ahead log on quire.ledger: one leader appends lines, followers keep a copy, and any follower can take over.

    quire localbookie 3 &
    scripts/examples/replicated_wal zk+hierarchical://127.0.0.1:2181/ledgers lead  --file leader.wal < lines
    scripts/examples/replicated_wal zk+hierarchical://127.0.0.1:2181/ledgers follow --file follower.wal
    kill -9 the leader; then, for the follower to become the leader:
    scripts/examples/replicated_wal zk+hierarchical://127.0.0.1:2181/ledgers lead  --file follower.wal < more lines

The log is a list of ledgers in one metadata node. Its last ledger is the one written to. A new leader recovers that
ledger, which fences its writer; completes its file; makes a new ledger; and puts it into the list
by compare-and-set, in the same write that creates it. The loser of that race loses only a ledger.

A line is in the leader's file, and printed on standard output, when two bookies have it on the disk. So the files are
equal byte for byte: a follower's is never ahead of what is confirmed, nor is a leader's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Literal

import trio
import typer

from quire.ledger import LedgerClient, LedgerError, LedgerReader, LedgerWriter, open_client_on
from quire.metadata.errors import BadVersionError, MetadataError, NodeExistsError
from quire.metadata.store import Create, MetadataStore, Op, Put
from quire.metadata.zookeeper.config import parse_connect_string
from quire.metadata.zookeeper.store import ZooKeeperConfig, open_store
from quire.service.programs.command_line import run_command
from quire.world.real import real_world

PASSWORD = b"replicated-wal"
READ_SIZE = 1 << 20
LIST_POLL_S = 0.2


class WalFile:
    """A copy of the log: concatenated entries, each a line. They are counted at the start; a torn last line, from a
    crash, is cut."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes() if path.exists() else b""
        whole = data.rfind(b"\n") + 1
        self.count = data.count(b"\n")
        self._file = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115 - closed with the process
        self._file.truncate(whole)
        self._file.seek(whole)

    def append(self, entries: Sequence[bytes | memoryview]) -> None:
        for entry in entries:
            self._file.write(entry)
        self._file.flush()
        self.count += len(entries)


class Log:
    """List of ledgers, [[ledger id, number of its first line in the log], ...], in one node."""

    def __init__(self, store: MetadataStore, client: LedgerClient, path: str) -> None:
        self.client = client
        self._store = store
        self._path = path

    async def ledgers(self) -> tuple[list[list[int]], int]:
        """Return the list and the node's version; -1 if there is none."""
        node = await self._store.get(self._path)
        return ([], -1) if node is None else (json.loads(node.value), node.version)

    async def catch_up(self, file: WalFile, ledgers: list[list[int]], *, recover: bool) -> int:
        """Append to the file the entries it lacks; return how many lines the log has then."""
        end = 0
        for index, (ledger_id, first) in enumerate(ledgers):
            is_last = index == len(ledgers) - 1
            if not is_last and ledgers[index + 1][1] <= file.count:
                continue
            reader = await self.client.open(ledger_id, password=PASSWORD, recover=recover and is_last)
            try:
                end = first + reader.last_entry_id + 1
                await copy(reader, first, file)
            finally:
                reader.close()
        return end

    async def lead(self, file: WalFile) -> LedgerWriter:
        """Become the only writer; the file is complete then. Raises LedgerError or MetadataError."""
        while True:
            ledgers, version = await self.ledgers()
            end = await self.catch_up(file, ledgers, recover=True)

            def with_list(ledger_id: int, known: list[list[int]] = ledgers, v: int = version, n: int = end) -> list[Op]:
                value = json.dumps([*known, [ledger_id, n]]).encode()
                return [
                    Put(path=self._path, value=value, version=v) if v >= 0 else Create(path=self._path, value=value)
                ]

            try:
                return await self.client.create(
                    ensemble_size=3, write_quorum=3, ack_quorum=2, password=PASSWORD, also=with_list
                )
            except (BadVersionError, NodeExistsError):
                continue  # another process leads now; fence that one


async def copy(reader: LedgerReader, first: int, file: WalFile) -> None:
    """Append to the file the entries confirmed according to the reader; `first` is the line of its entry 0."""
    while file.count - first <= reader.last_entry_id:
        file.append(await reader.read(file.count - first, reader.last_entry_id, size_max=READ_SIZE))


async def lead(log: Log, file: WalFile) -> None:
    """Append the lines of standard input, as they come, until it ends; print each when it is safe."""
    writer = await log.lead(file)
    print(f"leading from={file.count} ledger={writer.ledger_id}", flush=True)
    rest = b""
    stdin = trio.lowlevel.FdStream(sys.stdin.fileno())
    while data := await stdin.receive_some(1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        if not lines:
            continue
        entries = [line + b"\n" for line in lines]
        first = writer.append(entries)
        await writer.wait_confirmed(first + len(entries) - 1)
        file.append(entries)
        print(f"safe {file.count}", flush=True)
    await writer.close()


async def follow(log: Log, file: WalFile) -> None:
    """Keep the file up to date with the confirmed entries, forever."""
    print(f"following from={file.count}", flush=True)
    while True:
        before = file.count
        ledgers, _ = await log.ledgers()
        await log.catch_up(file, ledgers, recover=False)
        if file.count == before:
            await trio.sleep(LIST_POLL_S)
        else:
            print(f"has {file.count}", flush=True)


@asynccontextmanager
async def opened(uri: str, node: str) -> AsyncIterator[Log]:
    world = real_world()
    where = parse_connect_string(uri)
    store = await open_store(world, ZooKeeperConfig(servers=where.servers, chroot=where.chroot))
    try:
        async with open_client_on(world, store, root=where.ledgers_root) as client:
            yield Log(store, client, f"{where.ledgers_root.rpartition('/')[0]}/{node}")
    finally:
        with trio.CancelScope(shield=True):
            await store.aclose()


async def run(role: str, uri: str, node: str, file: Path) -> None:
    async with opened(uri, node) as log:
        await (lead if role == "lead" else follow)(log, WalFile(file))


def wal(
    uri: Annotated[
        str,
        typer.Argument(help="metadataServiceUri of the bookies, such as zk+hierarchical://127.0.0.1:2181/ledgers."),
    ],
    role: Literal["lead", "follow"],
    file: Annotated[Path, typer.Option(help="This process's copy of the log.")],
    node: Annotated[str, typer.Option(help="Name of the log: a metadata node beside the ledgers.")] = "replicated-wal",
) -> int:
    try:
        trio.run(run, role, uri, node, file)
    except (LedgerError, MetadataError) as error:
        print(f"replicated_wal: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(run_command(wal, name="replicated_wal", text="A write-ahead log that outlives its writer."))

"""Backup of a cluster's metadata, over the REST or from the metadata store itself, and its restoration into an empty
store, before servers start."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import trio

from quire.cli.admin.connection import RequestSender
from quire.cli.admin.errors import AdminCommandError, CommandLineError, NoAnswerError
from quire.cli.admin.verbs import ROOT, Request
from quire.cli.backup.file import HEADER, NODE, SUBSCRIPTION, BackupReader, BackupWriter

if TYPE_CHECKING:
    from quire.metadata.store import MetadataStore

LEDGERS_ROOT: Final = "/ledgers"
SEQUENCE_MAX: Final = (1 << 31) - 1
"""Highest number that a sequence of ZooKeeper may have."""
_OF_NO_BACKUP: Final = ("/zookeeper", "/quire-restoring")
_SEQUENCES: Final = SUBSCRIPTION
"""Kind of the record with the sequences: places from which counting goes on."""


def back_up(sender: RequestSender, path: Path, header: dict[str, Any]) -> int:
    """Write the metadata that a broker reads; return the number of nodes. Raises AdminCommandError."""

    def pages() -> Iterator[tuple[list[tuple[str, bytes]], dict[str, int]]]:
        after, more = "", True
        while more:
            found = sender.send(Request("GET", f"{ROOT}quireNodes?after={quote(after, safe='')}"))
            nodes = [(name, b64decode(value)) for name, value in found["nodes"]]
            more = found["more"]
            after = nodes[-1][0] if nodes else after
            yield nodes, found["sequences"]

    return _write(pages(), path, header)


def back_up_store(url: str, path: Path, header: dict[str, Any], conf: Path | None) -> int:
    """Write the metadata of a store that no broker needs to serve; return the number of nodes. Raises
    AdminCommandError."""
    from quire.metadata.walking import next_numbers, some_nodes

    async def read(store: MetadataStore) -> int:
        after, more = "", True
        with BackupWriter(path) as file:
            file.json(HEADER, {**header, "kind": "cluster"})
            count = 0
            while more:
                nodes, more = await some_nodes(store, after, nodes_max=1000, bytes_max=4 << 20)
                for name, value in nodes:
                    file.node(name, value)
                    after = name
                count += len(nodes)
            file.json(_SEQUENCES, await next_numbers(store, LEDGERS_ROOT))
            file.end()
        return count

    return _on_store(url, conf, read, make=False)


def _write(pages: Iterator[tuple[list[tuple[str, bytes]], dict[str, int]]], path: Path, header: dict[str, Any]) -> int:
    count = 0
    sequences: dict[str, int] = {}
    with BackupWriter(path) as file:
        file.json(HEADER, {**header, "kind": "cluster"})
        for nodes, found in pages:
            sequences = found
            for name, value in nodes:
                file.node(name, value)
            count += len(nodes)
        file.json(_SEQUENCES, sequences)
        file.end()
    return count


def restore(url: str, path: Path, conf: Path | None) -> int:
    """Write the metadata of a file into an empty store; return the number of nodes. Raises AdminCommandError; run it
    again then."""
    from quire.metadata.restoring import MetadataRestore

    with BackupReader(path) as file:
        summary = file.verify()
        if summary.header.get("kind") != "cluster":
            raise CommandLineError(f"{path} is no backup of metadata: `quire admin restore topic` takes it")
        _check(file, path)

        async def write(store: MetadataStore) -> int:
            restoring = MetadataRestore(store, summary.id)
            await restoring.begin()
            sequences: dict[str, int] = {}
            for record in file.records():
                if record.kind == NODE:
                    await restoring.put(*record.node)
                elif record.kind == _SEQUENCES:
                    sequences = record.json
            await restoring.end(sequences)
            return summary.counts.get("N", 0)

        return _on_store(url, conf, write, make=True)


def _check(file: BackupReader, path: Path) -> None:
    """Raise CommandLineError if a file that is whole has records that `quire admin backup` does not make. Nothing was
    written then."""
    from quire.metadata.paths import is_valid

    for record in file.records():
        problem = ""
        if record.kind == NODE:
            try:
                name = record.node[0]
            except UnicodeDecodeError:
                name = ""
            if not is_valid(name) or name.startswith(_OF_NO_BACKUP):
                problem = f"the node {name[:200]!a}"
        elif record.kind == _SEQUENCES:
            try:
                given = record.json
            except (ValueError, RecursionError):
                given = None
            whole = isinstance(given, dict) and all(
                is_valid(prefix) and type(number) is int and 0 <= number <= SEQUENCE_MAX
                for prefix, number in given.items()
            )
            problem = "" if whole else "the sequences"
        if problem:
            raise CommandLineError(f"{path}, byte {record.offset}: {problem}: `quire admin backup` makes no such file")


def _on_store(url: str, conf: Path | None, work: Callable[[MetadataStore], Any], *, make: bool) -> int:
    """Run `work` on the store that `url` names. Raises AdminCommandError."""
    from quire.metadata.errors import InvalidConnectStringError, MetadataError
    from quire.servers.errors import DataDirectoryError
    from quire.servers.metadata_stores import STANDALONE, opened_store
    from quire.service.errors import ConfigError

    if url.startswith(STANDALONE):
        url = f"{STANDALONE}{Path(url.removeprefix(STANDALONE)).absolute()}"

    async def main() -> int:
        async with opened_store(url, conf, make=make) as store:
            found: int = await work(store)
            return found

    try:
        return trio.run(main)
    except (ConfigError, InvalidConnectStringError, DataDirectoryError, FileNotFoundError) as error:
        raise CommandLineError(f"--metadata-store {url}: {error}") from None
    except MetadataError as error:
        if error.passing:
            raise NoAnswerError(f"--metadata-store {url}: {error}") from None
        raise AdminCommandError(f"--metadata-store {url}: {error}") from None

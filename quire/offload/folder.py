"""Files of a topic's offloaded ledgers: names, durable creation, and what may be removed.

    FOLDER/<tenant>/<namespace>/<topic>/ledger-<id>-<uid>.parquet        a whole ledger
                                        ledger-<id>-<uid>.parquet.tmp    one that is being written
                                        _manifest.json                   the files that count, for other engines
                                        _lock                            held by the writing process

A file gets its name without `.tmp` only after it is whole and durable, so a crash leaves a whole file or none. Which of
several files of a ledger counts is said by the ledger list alone: it names the uid.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import quote

from quire.offload.errors import OffloadedLedgerError, OffloadInUseError
from quire.wire.pulsar.names import TopicName

MANIFEST: Final = "_manifest.json"
LOCK: Final = "_lock"
VERSION: Final = 1
_UID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_name: Final = re.compile(rf"ledger-([0-9]{{1,19}})-({_UID})\.parquet(\.tmp)?").fullmatch


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of a ledger."""

    path: Path
    ledger_id: int
    uid: str
    temporary: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A file of the manifest."""

    path: str
    """Name in the folder of the topic."""
    ledger: int
    uid: str
    entries: int
    rows: int
    bytes: int
    """Size of the file."""
    closed_ms: int


def topic_folder(folder: Path, topic: str) -> Path:
    """Return the folder of a topic or partition.

    >>> topic_folder(Path("/o"), "persistent://public/default/../a b")
    PosixPath('/o/public/default/%2E.%2Fa%20b')
    """
    name = TopicName.parse(topic)
    return folder / _component(name.tenant) / _component(name.namespace) / _component(name.local)


def _component(text: str) -> str:
    """Return a name of a file for any text: no other folder, and no name of this module."""
    quoted = quote(text, safe="")
    return f"%{ord(quoted[0]):02X}{quoted[1:]}" if quoted[:1] in (".", "_") else quoted


def ledger_path(folder: Path, ledger_id: int, uid: str) -> Path:
    """Return the path of a ledger's file in the folder of its topic."""
    return folder / f"ledger-{ledger_id}-{uid}.parquet"


def files(folder: Path) -> list[FoundFile]:
    """Return the files of ledgers in the folder of a topic, by name."""
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        match = _name(path.name)
        if match is not None:
            found.append(FoundFile(path, int(match[1]), match[2], match[3] is not None))
    return found


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder of a topic for its only writer, and create it. Raises OffloadInUseError, OSError."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in made:
        sync(each.parent)
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OffloadInUseError(f"another process offloads to {folder}: wait until it ends") from None
        yield
    finally:
        os.close(lock)


def create(path: Path) -> IO[bytes]:
    """Open the temporary file of `path` for writing and reading, in place of one that a crash left."""
    return _temporary(path).open("w+b")


def temporary(path: Path) -> Path:
    """Return where a file is written before it counts."""
    return _temporary(path)


def publish(path: Path) -> None:
    """Give a whole temporary file its name; durable on return."""
    sync(_temporary(path))
    _temporary(path).rename(path)
    sync(path.parent)


def remove(path: Path) -> None:
    """Remove a file, if it exists; durable on return."""
    path.unlink(missing_ok=True)
    sync(path.parent)


def discard(root: Path, topic: str, gone: Collection[tuple[int, str]]) -> bool:
    """Remove the files of ledgers that a topic has no more, by ledger and uid, as far as they exist: first from the
    manifest, so that it names no file that is missing. Other files of these ledgers go too, unless the manifest names
    them: they are of jobs that were killed. Durable on return. Return False and change nothing while another process
    offloads the topic.

    Raises OffloadedLedgerError: the folder `root` of all topics is missing or empty, so a mount is away; OSError."""
    if next(root.iterdir(), None) is None:
        raise OffloadedLedgerError(f"{root} is empty: mount it, or restore it")
    folder = topic_folder(root, topic)
    try:
        folder.stat()
    except FileNotFoundError:
        return True
    try:
        with locked(folder):
            ledgers = {ledger_id for ledger_id, _ in gone}
            try:
                listed = [each for each in read_manifest(folder) if (each.ledger, each.uid) not in gone]
            except OffloadedLedgerError:
                ledgers.clear()  # no file but these is known to be of no use; the next offloading writes the manifest
            else:
                write_manifest(folder, topic, listed)
                ledgers -= {each.ledger for each in listed}
            for file in files(folder):
                if (file.ledger_id, file.uid) in gone or file.ledger_id in ledgers:
                    file.path.unlink(missing_ok=True)
            sync(folder)
    except OffloadInUseError:
        return False
    return True


def sync(path: Path) -> None:
    """Make the content of a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_manifest(folder: Path) -> list[Listed]:
    """Return the files that count; none if there is no manifest. Raises OffloadedLedgerError: it is damaged."""
    path = folder / MANIFEST
    try:
        value: Any = json.loads(path.read_bytes())
        if value["v"] != VERSION:
            raise ValueError(f"version {value['v']}")
        return [Listed(**each) for each in value["files"]]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise OffloadedLedgerError(f"{path} is damaged ({error}): remove it, it is written again") from None


def write_manifest(folder: Path, topic: str, listed: list[Listed]) -> None:
    """Replace the manifest, if it changes; durable on return."""
    value = {"v": VERSION, "topic": topic, "files": [asdict(each) for each in listed]}
    text = json.dumps(value, indent=1).encode() + b"\n"
    path = folder / MANIFEST
    if path.exists() and path.read_bytes() == text:
        return
    _temporary(path).write_bytes(text)
    publish(path)


def _temporary(path: Path) -> Path:
    return path.with_name(path.name + ".tmp")

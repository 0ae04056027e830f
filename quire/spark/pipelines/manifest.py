"""The manifest of an archive: the valid files, and their last positions in the topics.

    OUT/_manifest.jsonl                              this file
    OUT/_lock                                        held by the writer
    OUT/batch=<number>/dt=<date>/part-*.parquet      the data; what the manifest does not name does not count

One JSON object a line, only ever appended, each durable (fsync) before the next thing happens:

    {"v":1,"begin":{"checkpoint":"/path","base":0,"start":{}}}
    {"v":1,"batch":7,"query":"<id>","rows":R,"files":[{"path":"batch=7/dt=2026-01-31/part-0.parquet","rows":R,"bytes":B}],
     "positions":{"persistent://t/n/x-partition-0":{"first":[L,E],"last":[L,E]}}}

A `begin` says that a query with a new checkpoint writes from here on, that its batch n becomes number base + n, and at
which entries it starts (of a resumed one). A `batch` says that a batch is complete: it is appended after its files are
durable, so a reader that takes the files of the manifest sees every batch once or not at all, however often it was
written. A last line without its line end is the rest of an append interrupted by a crash. It was never reported, and
does not count.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quire.spark.pipelines.errors import ArchiveInUseError, ManifestError

NAME = "_manifest.jsonl"
LOCK_NAME = "_lock"
VERSION = 1

DATE_COLUMN = "dt"
"""Publish date in UTC: not in the files, but in the names of their folders."""

EntryPosition = tuple[int, int]
"""Ledger id and entry id."""


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    path: str
    """Path below the archive's folder, with slashes."""
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Span:
    """First and last entry of a partition of which a batch has rows, both inclusive."""

    first: EntryPosition
    last: EntryPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """One complete batch."""

    batch: int
    query: str
    """Id of the streaming query, which is stored in its checkpoint."""
    rows: int
    files: tuple[ArchivedFile, ...]
    positions: dict[str, Span]
    """Spans by full name of the partition (or of the topic, if it has none)."""

    def to_json(self) -> dict[str, Any]:
        return {
            "v": VERSION,
            "batch": self.batch,
            "query": self.query,
            "rows": self.rows,
            "files": [{"path": file.path, "rows": file.rows, "bytes": file.size_bytes} for file in self.files],
            "positions": {
                name: {"first": list(span.first), "last": list(span.last)}
                for name, span in sorted(self.positions.items())
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginRecord:
    """Record that from here on batches belong to the query with this checkpoint."""

    checkpoint: str
    base: int
    start: dict[str, str] = field(default_factory=dict)
    """For a resumed archive: the next entry of each partition, `ledger:entry`."""

    def to_json(self) -> dict[str, Any]:
        return {"v": VERSION, "begin": {"checkpoint": self.checkpoint, "base": self.base, "start": self.start}}


@dataclass(frozen=True, slots=True)
class Manifest:
    """Content of a manifest, up to its last complete record."""

    records: tuple[BeginRecord | BatchRecord, ...] = ()

    @property
    def batches(self) -> list[BatchRecord]:
        return [record for record in self.records if isinstance(record, BatchRecord)]

    @property
    def begin(self) -> BeginRecord | None:
        """Return the last `begin` record."""
        return next((record for record in reversed(self.records) if isinstance(record, BeginRecord)), None)

    @property
    def query(self) -> str | None:
        """Return the query that wrote the last batch after the last `begin`; None if there is none yet."""
        last = self.records[-1] if self.records else None
        return last.query if isinstance(last, BatchRecord) else None

    def batch(self, number: int) -> BatchRecord | None:
        return next((record for record in reversed(self.batches) if record.batch == number), None)

    def next_batch(self) -> int:
        """Return a number above that of every batch."""
        return max((record.batch for record in self.batches), default=-1) + 1

    def last_positions(self) -> dict[str, EntryPosition]:
        """Return the highest archived entry of each partition that has any."""
        highest: dict[str, EntryPosition] = {}
        for record in self.batches:
            for name, span in record.positions.items():
                highest[name] = max(highest.get(name, span.last), span.last)
        return highest


def parse(data: bytes, where: str) -> Manifest:
    """Parse the complete lines of `data`. Raises ManifestError with `where` and the line."""
    records: list[BeginRecord | BatchRecord] = []
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
        try:
            records.append(_record(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise ManifestError(f"{where}, line {number}: invalid record of an archive ({error!r})") from None
    return Manifest(tuple(records))


def read_manifest(out: str | Path) -> Manifest:
    """Read the manifest of the archive in `out`, also during a write; an empty one if there is none."""
    path = Path(out) / NAME
    try:
        return parse(path.read_bytes(), str(path))
    except FileNotFoundError:
        return Manifest()


class ManifestWriter:
    """The manifest, for the only process that writes the archive. Made by `writing`."""

    def __init__(self, folder: Path, descriptor: int) -> None:
        self._folder = folder
        self._descriptor = descriptor
        path = folder / NAME
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.ftruncate(descriptor, whole)
            os.fsync(descriptor)
        self.manifest = parse(data, str(path))

    def append(self, record: BeginRecord | BatchRecord) -> None:
        """Append a record; durable on return. After an OSError the outcome is unknown, and this writer must not be used
        again."""
        line = json.dumps(record.to_json(), separators=(",", ":")).encode() + b"\n"
        _write_all(self._descriptor, line)
        os.fsync(self._descriptor)
        self.manifest = Manifest((*self.manifest.records, record))


@contextmanager
def writing(out: str | Path) -> Iterator[ManifestWriter]:
    """Lock the archive in `out` for its only writer, and create it if missing.

    Raises ArchiveInUseError, ManifestError, OSError."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArchiveInUseError(
                f"another process is writing the archive in {folder}: use one writer per archive, or wait until it ends"
            ) from None
        descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            sync_folder(folder)
            yield ManifestWriter(folder, descriptor)
        finally:
            os.close(descriptor)
    finally:
        os.close(lock)


def sync_file(path: Path) -> None:
    """Make the content of a file durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    sync_file(path)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _record(value: dict[str, Any]) -> BeginRecord | BatchRecord:
    if value["v"] != VERSION:
        raise ValueError(f"version {value['v']} is not supported, only {VERSION}")
    if "begin" in value:
        begin = value["begin"]
        return BeginRecord(
            checkpoint=str(begin["checkpoint"]),
            base=int(begin["base"]),
            start={str(k): str(v) for k, v in begin["start"].items()},
        )
    return BatchRecord(
        batch=int(value["batch"]),
        query=str(value["query"]),
        rows=int(value["rows"]),
        files=tuple(ArchivedFile(str(file["path"]), int(file["rows"]), int(file["bytes"])) for file in value["files"]),
        positions={
            str(name): Span(_position(span["first"]), _position(span["last"]))
            for name, span in value["positions"].items()
        },
    )


def _position(value: list[int]) -> EntryPosition:
    ledger, entry = value
    return int(ledger), int(entry)

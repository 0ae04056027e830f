"""The file of a backup: records with checksums, the same for topics and for metadata.

    "QUIREBAK", version (4) = 1, then records: size of the payload (4), kind (1), payload, CRC-32 of all three (4)

    kind   payload
    H      JSON: {"kind":"topic"|"cluster","made_ms":...,"quire":version,...}; the first record
    P      JSON: a topic, or a partition of it, as it was at the backup
    S      JSON: a subscription of it, or a part of one
    E      ledger id (8), entry id (8), the entry as it is stored: frame header, metadata, payload
    N      size of the path (4), path, value of a node
    X      JSON: {"records":...,"sha256":...}: records before it, and the digest of all bytes before it; the last record

Numbers are in network byte order. A file is written under the name `FILE.partial`, synced and linked to its name, so
a file of the name is whole. An existing file is never replaced. What was left by a killed process is overwritten by the
next run. Each flipped bit is found: in a record by its checksum, and what a record does not cover by the digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import IO, Any, Final

from quire.cli.admin.errors import AdminCommandError, CommandLineError

MAGIC: Final = b"QUIREBAK"
VERSION: Final = 1
HEADER: Final = b"H"
PART: Final = b"P"
SUBSCRIPTION: Final = b"S"
ENTRY: Final = b"E"
NODE: Final = b"N"
END: Final = b"X"
_KINDS: Final = (HEADER, PART, SUBSCRIPTION, ENTRY, NODE, END)
PAYLOAD_MAX: Final = 256 << 20
"""Bytes of one payload, far above the largest message."""
ID_DIGITS: Final = 32
_HEAD: Final = Struct("!Ic")
_U32: Final = Struct("!I")
_PLACE: Final = Struct("!qq")
_BUFFER: Final = 1 << 20


class BackupDamagedError(CommandLineError):
    """The file is damaged or not whole. Permanent: nothing was restored; take another copy of the file."""


@dataclass(frozen=True, slots=True)
class BackupRecord:
    """One record, and the byte of the file at which it begins."""

    kind: bytes
    payload: bytes
    offset: int

    @property
    def json(self) -> Any:
        return json.loads(self.payload)

    @property
    def entry(self) -> tuple[int, int, bytes]:
        """Return ledger id, entry id and bytes of an entry."""
        ledger_id, entry_id = _PLACE.unpack_from(self.payload)
        return ledger_id, entry_id, self.payload[_PLACE.size :]

    @property
    def node(self) -> tuple[str, bytes]:
        """Return path and value of a node."""
        end = _U32.size + int.from_bytes(self.payload[: _U32.size])
        return self.payload[_U32.size : end].decode(), self.payload[end:]


@dataclass(frozen=True, slots=True)
class BackupSummary:
    """A whole file, read once from begin to end."""

    header: dict[str, Any]
    counts: dict[str, int]
    """Records by kind."""
    parts: tuple[int, ...]
    """Bytes at which the records of the topic, or of its partitions, begin."""
    digest: str
    """SHA-256 of all bytes before the last record, in hexadecimal."""

    @property
    def id(self) -> str:
        """Return the name of the backup, the same for every copy of the file."""
        return self.digest[:ID_DIGITS]


class BackupWriter:
    """Writer of one file. Leave the `with` normally after `end`: then the file has its name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f"{path.name}.partial")
        self._digest = hashlib.sha256()
        self._file: IO[bytes]
        self._ended = False
        self.records = 0

    def __enter__(self) -> BackupWriter:
        if self._path.exists():
            raise CommandLineError(f"{self._path} exists: give another name")
        try:
            self._file = self._partial.open("wb", buffering=_BUFFER)
            os.chmod(self._partial, 0o600)  # (it has what the topic has)
        except OSError as error:
            raise CommandLineError(f"{self._partial} cannot be written: {error.strerror}") from None
        self._put(MAGIC + _U32.pack(VERSION))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if self._ended and kind is None:
                self._file.flush()
                os.fsync(self._file.fileno())
                os.link(self._partial, self._path)
        except FileExistsError:
            raise CommandLineError(f"{self._path} exists: give another name") from None
        except OSError as failure:
            raise CommandLineError(f"{self._path} cannot be written: {failure.strerror}") from None
        finally:
            with contextlib.suppress(OSError):  # (of a full disk, which was reported)
                self._file.close()
            with contextlib.suppress(OSError):
                os.unlink(self._partial)
        _sync_folder(self._path.parent)

    def record(self, kind: bytes, payload: bytes) -> None:
        """Write a record. Raises CommandLineError if the disk takes no more."""
        head = _HEAD.pack(len(payload), kind) + payload
        self._put(head + _U32.pack(zlib.crc32(head)))
        self.records += 1

    def json(self, kind: bytes, value: object) -> None:
        """Write a record with JSON."""
        self.record(kind, json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())

    def entry(self, ledger_id: int, entry_id: int, entry: bytes) -> None:
        """Write an entry."""
        self.record(ENTRY, _PLACE.pack(ledger_id, entry_id) + entry)

    def node(self, path: str, value: bytes) -> None:
        """Write a node."""
        encoded = path.encode()
        self.record(NODE, _U32.pack(len(encoded)) + encoded + value)

    def end(self) -> None:
        """Write the last record."""
        self.json(END, {"records": self.records, "sha256": self._digest.hexdigest()})
        self._ended = True

    def _put(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise CommandLineError(f"{self._partial} cannot be written: {error.strerror}") from None
        self._digest.update(data)


class BackupReader:
    """A file, opened to read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("rb", buffering=_BUFFER)
        except OSError as error:
            raise CommandLineError(f"{path} cannot be read: {error.strerror}") from None

    def __enter__(self) -> BackupReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def verify(self) -> BackupSummary:
        """Read the whole file. Raises BackupDamagedError for the first thing that is wrong."""
        digest = hashlib.sha256()
        header: dict[str, Any] | None = None
        counts: dict[str, int] = {}
        parts: list[int] = []
        for number, record in enumerate(self._records(0, digest.update)):
            if number == 0:
                if record.kind != HEADER:
                    raise self._damaged(record.offset, "the first record is no header")
                header = self._object(record)
            if record.kind == END:
                end = self._object(record)
                if end.get("records") != number or end.get("sha256") != digest.hexdigest():
                    raise self._damaged(record.offset, "the digest of the file is another")
                if self._file.read(1):
                    raise self._damaged(self._file.tell() - 1, "something follows the last record")
                assert header is not None, "the first record was checked"
                return BackupSummary(header, counts, tuple(parts), end["sha256"])
            digest.update(self._last)
            if record.kind == PART:
                parts.append(record.offset)
            counts[record.kind.decode()] = counts.get(record.kind.decode(), 0) + 1
        raise self._damaged(self._file.tell(), "it ends without its last record: it was not written to the end")

    def records(self) -> Iterator[BackupRecord]:
        """Yield the records from the begin on, with their checksums checked. Raises BackupDamagedError."""
        return self._records(0, _ignore)

    def at(self, offset: int) -> BackupRecord:
        """Return the record at a byte that a record gave; the next one of `records` may then be any."""
        self._file.seek(offset)
        found = self._next()
        assert found is not None, "there was a record"
        return found

    def _records(self, offset: int, on_head: Callable[[bytes], None]) -> Iterator[BackupRecord]:
        self._file.seek(offset)
        head = self._file.read(len(MAGIC) + _U32.size)
        if head[: len(MAGIC)] != MAGIC:
            raise CommandLineError(f"{self._path} is no file of `quire admin backup`")
        if (version := int.from_bytes(head[len(MAGIC) :])) != VERSION:
            raise BackupDamagedError(f"{self._path} has version {version}: use a newer quire, or it is damaged")
        on_head(head)
        while (record := self._next()) is not None:
            yield record
            self._file.seek(record.offset + _HEAD.size + len(record.payload) + _U32.size)

    def _next(self) -> BackupRecord | None:
        offset = self._file.tell()
        head = self._file.read(_HEAD.size)
        if not head:
            return None
        if len(head) < _HEAD.size:
            raise self._damaged(offset, "it ends inside a record")
        size, kind = _HEAD.unpack(head)
        if size > PAYLOAD_MAX or kind not in _KINDS:
            raise self._damaged(offset, "this is no record")
        payload = self._file.read(size)
        check = self._file.read(_U32.size)
        if len(payload) < size or len(check) < _U32.size:
            raise self._damaged(offset, "it ends inside a record")
        if zlib.crc32(payload, zlib.crc32(head)) != int.from_bytes(check):
            raise self._damaged(offset, "the checksum of a record is another")
        self._last = head + payload + check
        return BackupRecord(kind, payload, offset)

    def _object(self, record: BackupRecord) -> dict[str, Any]:
        """Return the JSON object of a record. Raises BackupDamagedError."""
        try:
            found = record.json
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._damaged(record.offset, "a record is no JSON object")
        return found

    def _damaged(self, offset: int, what: str) -> BackupDamagedError:
        return BackupDamagedError(f"{self._path} is damaged at byte {offset}: {what}. Take another copy of the file")


def _ignore(data: bytes) -> None:
    pass


def _sync_folder(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise AdminCommandError(f"{folder} cannot be synced: {error.strerror}") from None

"""Entries in the entry logs of bookies, whether their ledgers still exist or not. Blocking.

A deleted ledger stays in the entry logs until garbage collection deletes the whole log: at the earliest `gcWaitTime`
after the deletion, and not before every other ledger in that log is deleted too. Nothing here is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from bookie.db_ledger_storage.entry_log_format import SIZE_LENGTH, Scan
from quire.wire.bookkeeper.entry import Digest, DigestType, digest_of
from quire.wire.bookkeeper.errors import DigestMismatchError
from quire.world.doors import File
from quire.world.real_disk import RealDisk

DIGESTS: Final = (DigestType.CRC32C, DigestType.CRC32, DigestType.HMAC)
"""Digests that brokers use."""


class LogPlace(NamedTuple):
    """One copy of an entry."""

    log: int
    """Index of the log."""
    offset: int
    size: int


@dataclass
class SalvagedEntries:
    """Entries of the logs, by ledger and entry; of several copies all are kept."""

    logs: list[str] = field(default_factory=list)
    ledgers: dict[int, dict[int, list[LogPlace]]] = field(default_factory=dict)
    torn: list[str] = field(default_factory=list)
    """Logs that could not be read to their end."""


def scan(folders: Iterable[Path], wanted: Collection[int] | None) -> SalvagedEntries:
    """Return the places of all entries of these ledgers; None: of all. Raises OSError, ValueError for a folder without
    entry logs."""
    disk, found = RealDisk(), SalvagedEntries()
    for folder in folders:
        current = folder / "current" if (folder / "current").is_dir() else folder
        paths = [path for _, path in sorted(_with_times(current.glob("*.log")))]
        if not paths:
            raise ValueError(
                f"{folder} has no entry logs: name the folder ledgerDirectories of a bookie, or a copy of it"
            )
        for path in paths:
            number = len(found.logs)
            found.logs.append(str(path))
            with ExitStack() as stack:
                try:
                    file = disk.open(str(path), writable=False)
                except FileNotFoundError:
                    found.torn.append(f"{path} was deleted in the meantime")
                    continue
                stack.callback(file.close)
                scanned = Scan(file.pread, file.size())
                for entry in scanned:
                    if entry.entry_id >= 0 and (wanted is None or entry.ledger_id in wanted):
                        places = found.ledgers.setdefault(entry.ledger_id, {}).setdefault(entry.entry_id, [])
                        places.append(LogPlace(number, entry.offset + SIZE_LENGTH, entry.size))
            if scanned.torn_at >= 0:
                found.torn.append(f"{path} is torn or damaged at offset {scanned.torn_at}")
    return found


def _with_times(paths: Iterable[Path]) -> Iterator[tuple[float, Path]]:
    """Yield each log with its time, but for one that a bookie deletes at this moment."""
    for path in paths:
        with suppress(FileNotFoundError):
            yield path.stat().st_mtime, path


class SalvageReader:
    """Reader of found entries. Close it, or use it as a context manager."""

    def __init__(self, found: SalvagedEntries, password: bytes = b"") -> None:
        self._found = found
        self._disk = RealDisk()
        self._digests: list[Digest] = [digest_of(each, password) for each in DIGESTS]
        self._open: tuple[int, File] | None = None
        self.gone: dict[str, None] = {}
        """Logs that a bookie has deleted since they were scanned."""

    def __enter__(self) -> SalvageReader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def entries(self, ledger_id: int) -> Iterator[tuple[int, bytes | None]]:
        """Yield the entries of a ledger in order: the id, and what was published; None if no copy is undamaged."""
        for entry_id, places in sorted(self._found.ledgers[ledger_id].items()):
            copies = (self._read(ledger_id, entry_id, each) for each in places)
            yield entry_id, next((good for good in copies if good is not None), None)

    def _read(self, ledger_id: int, entry_id: int, place: LogPlace) -> bytes | None:
        if self._open is None or self._open[0] != place.log:
            self.__exit__()
            path = self._found.logs[place.log]
            try:
                self._open = (place.log, self._disk.open(path, writable=False))
            except FileNotFoundError:
                self.gone[path] = None
                return None
        entry = memoryview(self._open[1].pread(place.size, place.offset))
        for digest in self._digests:
            try:
                payload = bytes(digest.open(ledger_id, entry_id, entry))
            except DigestMismatchError:
                continue
            self._digests.remove(digest)
            self._digests.insert(0, digest)  # most likely that of the next one too
            return payload
        return None

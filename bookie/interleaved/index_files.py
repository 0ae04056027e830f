"""The index files in a bookie's index folders. Blocking.

The original puts the index file of a ledger into any of its index folders, and may leave a ledger in two of them if it
is killed while it moves one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from bookie.errors import StorageDamagedError
from bookie.interleaved.index_file import (
    INDEX_HEADER_LENGTH,
    LOCATION_LENGTH,
    PAGE_LENGTH,
    IndexHeader,
    index_path,
    is_hex,
    ledger_of,
    locations,
)
from quire.world.doors import Disk, File

_CHUNK: Final = 1 << 16
_ENTRY_ID_MAX: Final = 1 << 40
"""Highest entry id that is written: the file would be 8 TiB long."""
_TEMPORARY: Final = ".tmp"


class FoundIndex(NamedTuple):
    """One index file."""

    ledger_id: int
    folder: str
    """The folder `current` in which it is."""

    @property
    def path(self) -> str:
        return f"{self.folder}/{index_path(self.ledger_id)}"


@dataclass(frozen=True, slots=True)
class LedgerIndexFile:
    """An open index file. `header` is None if none was ever written: the bookie was killed when it made the file."""

    path: str
    header: IndexHeader | None
    file: File

    def locations(self) -> Iterator[list[tuple[int, int]]]:
        """Yield entry ids with their locations, ascending, a few thousand at a time."""
        at = INDEX_HEADER_LENGTH
        while len(data := self.file.pread(_CHUNK, at)) >= LOCATION_LENGTH:
            found = list(locations(data, (at - INDEX_HEADER_LENGTH) // LOCATION_LENGTH))
            if found:
                yield found
            at += len(data) // LOCATION_LENGTH * LOCATION_LENGTH


def has_index_files(disk: Disk, current: str) -> bool:
    """Return whether a folder `current` has at least one index file."""
    return next(find_index_files(disk, [current]), None) is not None


def find_index_files(disk: Disk, folders: Sequence[str]) -> Iterator[FoundIndex]:
    """Yield all index files of the folders `current`."""
    for folder in folders:
        for first in _folders(disk, folder):
            for second in _folders(disk, f"{folder}/{first}"):
                for name in disk.names(f"{folder}/{first}/{second}"):
                    ledger_id = ledger_of(f"{first}/{second}", name)
                    if ledger_id >= 0:
                        yield FoundIndex(ledger_id, folder)


def _folders(disk: Disk, path: str) -> list[str]:
    """Return the names in a folder that name folders of index files."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return [name for name in disk.names(path) if is_hex(name) and len(name) <= 2]
    return []


def open_index(disk: Disk, found: FoundIndex) -> LedgerIndexFile:
    """Open an index file. StorageDamagedError if its header is damaged; OSError. The caller closes `file`."""
    file = disk.open(found.path, writable=False)
    try:
        data = file.pread(INDEX_HEADER_LENGTH, 0)
        header: IndexHeader | None
        try:
            header = IndexHeader.decode(data)
        except StorageDamagedError as error:
            # The original syncs the header with the first flush. Before that, all of the ledger is in the journal.
            header = None
            index = LedgerIndexFile(found.path, header, file)
            if (any(data) and len(data) == INDEX_HEADER_LENGTH) or next(index.locations(), None) is not None:
                raise StorageDamagedError(f"{found.path}: {error}") from error
        return LedgerIndexFile(found.path, header, file)
    except BaseException:
        file.close()
        raise


def write_index(disk: Disk, found: FoundIndex, header: IndexHeader, entries: Iterator[list[tuple[int, int]]]) -> int:
    """Write an index file anew, durable but for its name, and return its number of entries.

    `entries` are ids with locations, ascending. The caller syncs the folder with `sync_folders`.
    StorageDamagedError for an entry id that no index file can have; OSError.
    """
    disk.make_dirs(found.path.rpartition("/")[0])
    temporary = found.path + _TEMPORARY
    count, end = 0, INDEX_HEADER_LENGTH
    with closing(disk.open(temporary, create=True)) as file:
        file.truncate(0)
        file.pwrite(header.encode(), 0)
        for part in entries:
            for first, values in _without_gaps(part):
                if first + len(values) > _ENTRY_ID_MAX:
                    raise StorageDamagedError(
                        f"ledger {found.ledger_id} has an entry {first + len(values) - 1}: an index file would be "
                        "larger than a disk"
                    )
                at = INDEX_HEADER_LENGTH + first * LOCATION_LENGTH
                data = Struct(f"!{len(values)}q").pack(*values)
                file.pwrite(data, at)
                end = at + len(data)
                count += len(values)
        pages = -(-(end - INDEX_HEADER_LENGTH) // PAGE_LENGTH)
        file.truncate(INDEX_HEADER_LENGTH + pages * PAGE_LENGTH)
        file.sync()
    disk.rename(temporary, found.path)
    return count


def _without_gaps(part: list[tuple[int, int]]) -> Iterator[tuple[int, list[int]]]:
    """Yield runs of consecutive entries: the id of the first, and the locations."""
    first, values = -1, list[int]()
    for entry_id, location in part:
        if values and entry_id != first + len(values):
            yield first, values
            values = []
        if not values:
            first = entry_id
        values.append(location)
    if values:
        yield first, values


def sync_folders(disk: Disk, folder: str) -> None:
    """Make the names of all index files of a folder `current` durable."""
    for first in _folders(disk, folder):
        for second in _folders(disk, f"{folder}/{first}"):
            disk.sync_dir(f"{folder}/{first}/{second}")
        disk.sync_dir(f"{folder}/{first}")
    disk.sync_dir(folder)


def delete_index_files(disk: Disk, folder: str, progress: Callable[[int], None] = lambda count: None) -> int:
    """Delete all index files of a folder `current`, those that were not finished too, and the folders they leave empty.

    Return how many were deleted.
    """
    count = 0
    for first in _folders(disk, folder):
        for second in _folders(disk, f"{folder}/{first}"):
            place = f"{folder}/{first}/{second}"
            for name in disk.names(place):
                if ledger_of(f"{first}/{second}", name.removesuffix(_TEMPORARY)) >= 0:
                    disk.unlink(f"{place}/{name}")
                    count += 1
            _remove_if_empty(disk, place)
        _remove_if_empty(disk, f"{folder}/{first}")
        progress(count)
    disk.sync_dir(folder)
    return count


def _remove_if_empty(disk: Disk, place: str) -> None:
    if disk.names(place):
        disk.sync_dir(place)
    else:
        disk.remove_dir(place)

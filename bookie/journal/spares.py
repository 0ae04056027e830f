"""Spare journal files: files that recovery no longer needs, kept to be written again (journalReuseFiles).

Why: a write into a file that has its blocks changes no metadata of the file system, so that its sync is one write to
the disk. In a new file each sync also commits which blocks now hold data.

    <hex id>.txn  --- the mark has passed it, and there are enough backups --->  <hex id>.spare  (one at most)
    <hex id>.spare  --- its name and then the new header are synced --->  renamed to <hex new id>.txn

Only names with `.txn` are read, by us and by the original. A crash leaves either a spare, whatever its header, or a
begun file with its own header, never a file with the header of another one.

The old groups stay behind the new ones. Ours have the id of their file in their trailers (seal.py), and ids never come
again, so replay takes none of them. The original has no such ids: it would go on reading behind the last group. Hence
the header, and each group, is followed by a sector of zeros, where it stops. The next group overwrites that sector. A
file that is left, for the next or at a stop, is cut behind its last group.

Source of the option: BookKeeper's Journal, which gives the oldest of its backups to the next file. There it needs a
FileChannelProvider that allows it, and stale records behind the tail are read.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, NamedTuple

from bookie.errors import JournalFailedError
from bookie.journal.format import FILE_ID_MAX, HEADER_SIZE, LogMark, encode_header, file_name
from bookie.journal.replay import journal_ids
from quire.world.doors import Disk, File

_SUFFIX: Final = ".spare"
TERMINATOR: Final = bytes(512)
"""Sector behind the last group in a reused file."""


class BegunFile(NamedTuple):
    """A journal file of which the header and the name are durable. `stale_end`: where its old content ends."""

    file: File
    stale_end: int


def spare_ids(disk: Disk, directory: str) -> list[int]:
    """Return the former ids of the spare files in a folder, ascending. Blocking."""
    stems = [name.removesuffix(_SUFFIX) for name in disk.names(directory) if name.endswith(_SUFFIX)]
    return sorted(int(stem, 16) for stem in stems if stem and not stem.strip("0123456789abcdef"))


def next_id(disk: Disk, directory: str, wall_ms: int) -> int:
    """Return the id of the next file: above those of all files, spares included. Blocking.

    JournalFailedError: a file has the highest id. Ids are times in milliseconds, so it is no file of a bookie.
    """
    ids = [*journal_ids(disk, directory), *spare_ids(disk, directory)]
    following = max(ids) + 1 if ids else wall_ms + 1
    if following > FILE_ID_MAX:
        path = f"{directory}/{file_name(FILE_ID_MAX)}"
        raise JournalFailedError(f"no journal file can have a higher id than {path}: move it away")
    return following


def begin_file(
    disk: Disk, directory: str, file_id: int, previous: LogMark | None, *, direct: bool, reuse: bool
) -> BegunFile:
    """Begin a journal file, in a spare one if there is one and `reuse`. Blocking. OSError: nothing has changed."""
    path = f"{directory}/{file_name(file_id)}"
    if reuse:
        begun = _reuse(disk, directory, path, encode_header(file_id, previous, reused=True), direct=direct)
        if begun is not None:
            return begun
    file = disk.open(path, create=True, direct=direct)
    try:
        file.pwrite(encode_header(file_id, previous), 0)
        file.sync()
        disk.sync_dir(directory)
    except BaseException:
        file.close()
        disk.unlink(path)
        raise
    return BegunFile(file, HEADER_SIZE)


def _reuse(disk: Disk, directory: str, path: str, header: bytes, *, direct: bool) -> BegunFile | None:
    spares = spare_ids(disk, directory)
    if not spares:
        return None
    name = spare = _path(directory, spares[0])
    try:
        file = disk.open(spare, direct=direct)
    except FileNotFoundError:
        return None  # a checkpoint deleted it meanwhile, because the disk is full
    try:
        # First the name: otherwise a crash could leave the file under its old name, with the header of another file.
        disk.sync_dir(directory)
        file.pwrite(header + TERMINATOR, 0)
        file.sync()
        disk.rename(spare, path)
        name = path
        disk.sync_dir(directory)
        return BegunFile(file, file.size())
    except BaseException:
        file.close()
        with suppress(FileNotFoundError):
            disk.unlink(name)
        raise


def trim(disk: Disk, directory: str, mark: LogMark, *, backups: int, spare_size_min: int | None) -> None:
    """Delete the files before `mark` except the newest `backups`; one of them becomes the spare file, if there is none
    and it has `spare_size_min` bytes. None: no spare is kept. Blocking. OSError.
    """
    old = [i for i in journal_ids(disk, directory) if i < mark.file_id]
    spares = spare_ids(disk, directory)
    if spare_size_min is None:
        for file_id in spares:
            with suppress(FileNotFoundError):  # the journal has just taken it
                disk.unlink(_path(directory, file_id))
    for file_id in old[: max(0, len(old) - backups)]:
        path = f"{directory}/{file_name(file_id)}"
        if spare_size_min is not None and not spares and _size(disk, path) >= spare_size_min:
            disk.rename(path, _path(directory, file_id))
            spares.append(file_id)
        else:
            disk.unlink(path)


def _path(directory: str, file_id: int) -> str:
    return f"{directory}/{file_id:x}{_SUFFIX}"


def _size(disk: Disk, path: str) -> int:
    file = disk.open(path, writable=False)
    try:
        return file.size()
    finally:
        file.close()

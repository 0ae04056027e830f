"""The simulated disk: synced data are durable, and a crash may drop anything else.

A file has a volatile image, which readers see, a durable one, and the list of changes that lead from the durable to the
volatile. A crash draws which of these changes survive: none, all, a prefix whose last write is torn, or any subset, at
the granularity of 512-byte sectors. Names are the same in small: created, renamed and removed names that no `sync_dir`
covered survive as a prefix, since file systems keep a journal of them.
"""

from __future__ import annotations

import errno
import os
import posixpath
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from quire.world.doors import Board, Buffer, DiskLock, File, NotSyncedError
from simulation.machines.power import Power
from simulation.machines.trace import Trace

SECTOR = 512
"""Bytes that a disk writes whole or not at all."""
_PLENTY = 1 << 40


@dataclass(frozen=True, slots=True)
class Dropped:
    """Losses of one crash."""

    writes: int = 0
    """Writes to files that were lost or torn."""
    bytes: int = 0
    """Bytes of them that were lost."""
    names: int = 0
    """Created, renamed or removed names that were lost."""
    batches: int = 0
    """Unsynced key-value batches that were lost."""


class _Content:
    """Content of a file. Zeros at the end need no memory: preallocated files are long."""

    __slots__ = ("data", "size")

    def __init__(self) -> None:
        self.data = bytearray()
        self.size = 0

    def read(self, offset: int, size: int) -> bytes:
        size = max(0, min(size, self.size - offset))
        data = bytes(self.data[offset : offset + size])
        return data + bytes(size - len(data))

    def write(self, offset: int, data: Buffer) -> None:
        if offset > len(self.data):
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset : offset + len(data)] = data
        self.size = max(self.size, offset + len(data))

    def resize(self, size: int) -> None:
        del self.data[size:]
        self.size = size

    def copy(self) -> _Content:
        twin = _Content()
        twin.data[:] = self.data
        twin.size = self.size
        return twin


_Change: TypeAlias = tuple[int, bytes | None]
"""(offset, data) of a write; (size, None) of a change of length."""


class _Inode:
    __slots__ = ("changes", "durable", "failed", "number", "volatile")

    def __init__(self, number: int) -> None:
        self.number = number
        self.volatile = _Content()
        self.durable = _Content()
        self.changes: list[_Change] = []
        self.failed = False
        """A sync has failed: more is readable than will ever be durable."""

    def change(self, change: _Change) -> None:
        self.changes.append(change)
        _apply(self.volatile, change)

    def sync(self) -> int:
        for change in self.changes:
            _apply(self.durable, change)
        count = len(self.changes)
        self.changes.clear()
        return count

    def crash(self, rng: random.Random) -> tuple[int, int]:
        """Draw the surviving changes; return the lost writes and bytes."""
        kept = _survivors(self.changes, rng)
        lost_writes = lost_bytes = 0
        for (_, data), pieces in zip(self.changes, kept, strict=True):
            lost = (len(data) if data is not None else 0) - sum(len(piece[1] or b"") for piece in pieces)
            lost_bytes += lost
            lost_writes += lost > 0
            for piece in pieces:
                _apply(self.durable, piece)
        self.changes.clear()
        self.failed = False
        self.volatile = self.durable.copy()
        return lost_writes, lost_bytes


def _apply(content: _Content, change: _Change) -> None:
    at, data = change
    if data is None:
        content.resize(at)
    else:
        content.write(at, data)


def _survivors(changes: Sequence[_Change], rng: random.Random) -> list[list[_Change]]:
    """Yield for each change the pieces of it that a crash leaves on the disk."""
    nothing: list[list[_Change]] = [[] for _ in changes]
    if not changes:
        return nothing
    draw = rng.random()
    if draw < 0.35:
        return nothing
    if draw < 0.5:
        return [[change] for change in changes]
    if draw < 0.8:
        torn = rng.randrange(len(changes))
        pieces = _sectors(changes[torn])
        kept = nothing
        kept[:torn] = [[change] for change in changes[:torn]]
        kept[torn] = pieces[: rng.randrange(len(pieces) + 1)]
        return kept
    share = rng.random()
    return [[piece for piece in _sectors(change) if rng.random() < share] for change in changes]


def _sectors(change: _Change) -> list[_Change]:
    offset, data = change
    if data is None:
        return [change]
    cuts = [0, *range(SECTOR - offset % SECTOR, len(data), SECTOR), len(data)]
    return [(offset + a, data[a:b]) for a, b in pairwise(cuts) if b > a]


_Names: TypeAlias = dict[str, dict[str, "_Inode | None"]]
"""Folder path -> name -> file, or None for a folder in it."""


@dataclass(frozen=True, slots=True)
class _Renaming:
    """A change of names: `removed` (folder, name), `added` likewise with the file that it now names."""

    removed: tuple[str, str] | None
    added: tuple[str, str] | None
    inode: _Inode | None

    def apply(self, names: _Names) -> None:
        if self.removed is not None:
            names[self.removed[0]].pop(self.removed[1], None)
        if self.added is not None:
            names[self.added[0]][self.added[1]] = self.inode

    def touched(self) -> list[tuple[str, str]]:
        return [place for place in (self.removed, self.added) if place is not None]


class DiskImage:
    """Disk of a machine, across crashes; tests and the nemesis damage it here."""

    def __init__(self) -> None:
        self._names: _Names = {"/": {}}
        self._durable_names: _Names = {"/": {}}
        self._renamings: list[_Renaming] = []
        self._dirty: dict[int, _Inode] = {}
        self._inodes = 0
        self._used = 0
        self._capacity = _PLENTY
        self._failing_syncs = 0
        self._locks: dict[str, Power] = {}

    # Damage

    def limit(self, free: int | None) -> None:
        """Limit further writes to `free` bytes (None: plenty)."""
        self._capacity = _PLENTY if free is None else self._used + free

    @property
    def is_limited(self) -> bool:
        """Return whether `limit` holds."""
        return self._capacity < _PLENTY

    def fail_syncs(self, count: int = 1) -> None:
        """The next `count` syncs of files or maps raise EIO, and what they should have made durable never will be."""
        self._failing_syncs = count

    def flip(self, path: str, offset: int, bit: int) -> None:
        """Flip one bit (0-7) of the byte at `offset`, wherever it is kept."""
        inode = self._file(path)
        for content in (inode.volatile, inode.durable):
            if offset < content.size:
                content.write(offset, bytes([content.read(offset, 1)[0] ^ 1 << bit]))

    def overwrite(self, path: str, offset: int, data: bytes) -> None:
        """Overwrite bytes, wherever they are kept; the file keeps its length."""
        inode = self._file(path)
        for content in (inode.volatile, inode.durable):
            piece = data[: max(0, content.size - offset)]
            if piece:
                content.write(offset, piece)

    def remove(self, path: str) -> None:
        """Remove a file, durably."""
        self._used -= self._file(path).volatile.size
        folder, name = posixpath.split(path)
        for names in (self._names, self._durable_names):
            names.get(folder, {}).pop(name, None)

    def fork(self) -> DiskImage:
        """Return another disk with everything readable from this one, all of it durable, without locks."""
        twin = DiskImage()
        twin._names = {folder: dict(names) for folder, names in self._names.items()}
        for names in twin._names.values():
            for name, inode in names.items():
                if inode is not None:
                    copy = names[name] = _Inode(inode.number)
                    copy.volatile = inode.volatile.copy()
                    copy.durable = inode.volatile.copy()
        twin._durable_names = {folder: dict(names) for folder, names in twin._names.items()}
        twin._inodes = self._inodes
        twin._used = self._used
        return twin

    def cut(self, path: str, size: int) -> None:
        """Shorten (or lengthen) a file, durably."""
        inode = self._file(path)
        self._used += size - inode.volatile.size
        inode.sync()
        inode.volatile.resize(size)
        inode.durable.resize(size)

    def crash(self, rng: random.Random) -> Dropped:
        """Drop what was not durable, except what `rng` lets survive."""
        draw = rng.random()
        kept = 0 if draw < 0.5 else len(self._renamings) if draw < 0.7 else rng.randint(0, len(self._renamings))
        lost_names = len(self._renamings) - kept
        for renaming in self._renamings[:kept]:
            renaming.apply(self._durable_names)
        self._renamings.clear()
        self._names = {folder: dict(names) for folder, names in self._durable_names.items()}
        lost_writes = lost_bytes = 0
        for number in sorted(self._dirty):
            writes, size = self._dirty[number].crash(rng)
            lost_writes += writes
            lost_bytes += size
        self._dirty.clear()
        self._used = sum(
            inode.volatile.size for names in self._names.values() for inode in names.values() if inode is not None
        )
        return Dropped(writes=lost_writes, bytes=lost_bytes, names=lost_names)

    # Used by the door and the tests

    def read(self, path: str) -> bytes:
        content = self._file(path).volatile
        return content.read(0, content.size)

    def paths(self) -> list[str]:
        """Return all files, sorted."""
        return sorted(
            posixpath.join(folder, name)
            for folder, names in self._names.items()
            for name, inode in names.items()
            if inode is not None
        )

    @property
    def free(self) -> int:
        return max(0, self._capacity - self._used)

    def _folder(self, path: str) -> dict[str, _Inode | None]:
        try:
            return self._names[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such folder", path) from None

    def _find(self, path: str) -> _Inode | None:
        folder, name = posixpath.split(path)
        inode = self._folder(folder).get(name)
        if inode is None and path in self._names:
            raise IsADirectoryError(errno.EISDIR, "is a folder", path)
        return inode

    def _file(self, path: str) -> _Inode:
        inode = self._find(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return inode

    def _rename(self, renaming: _Renaming) -> None:
        self._renamings.append(renaming)
        renaming.apply(self._names)

    def _sync_names(self, folder: str) -> int:
        """Make durable the changes of names in `folder`, and earlier ones of the same files on which they depend."""
        chosen: list[_Renaming] = []
        left: list[_Renaming] = []
        needed: dict[tuple[str, str], None] = {}
        for renaming in reversed(self._renamings):
            touched = renaming.touched()
            if any(place[0] == folder or place in needed for place in touched):
                chosen.append(renaming)
                needed.update(dict.fromkeys(touched))
            else:
                left.append(renaming)
        for renaming in reversed(chosen):
            renaming.apply(self._durable_names)
        self._renamings = left[::-1]
        return len(chosen)


class SimDisk:
    """The disk door of one incarnation of a host."""

    def __init__(self, image: DiskImage, power: Power, trace: Trace, host: str) -> None:
        self._image = image
        self._power = power
        self._trace = trace
        self._host = host

    def open(self, path: str, *, create: bool = False, writable: bool = True, direct: bool = False) -> File:
        self._power.check()
        inode = self._image._find(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._power.spend()
            self._image._inodes += 1
            inode = _Inode(self._image._inodes)
            self._image._rename(_Renaming(None, posixpath.split(path), inode))
        return _SimFile(self, inode, path, writable, direct)

    def read(self, path: str) -> bytes:
        self._power.check()
        return self._image.read(path)

    def board(self, path: str) -> Board:
        self._power.check()
        return _SimBoard(self, self._image._file(path), path)

    def write_atomic(self, path: str, data: bytes) -> None:
        # In the same steps as the real one, so that a crash can come between any two of them.
        temporary = f"{path}.tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.pwrite(data, 0)
            file.sync()
        except OSError:
            self.unlink(temporary)
            raise
        self.rename(temporary, path)
        self.sync_dir(posixpath.dirname(path))

    def exists(self, path: str) -> bool:
        self._power.check()
        folder, name = posixpath.split(path)
        return path in self._image._names or name in self._image._names.get(folder, {})

    def names(self, path: str) -> list[str]:
        self._power.check()
        return sorted(self._image._folder(path))

    def make_dirs(self, path: str) -> None:
        self._power.check()
        if path in self._image._names:
            return
        parent, name = posixpath.split(path)
        self.make_dirs(parent)
        if self._image._find(path) is not None:
            raise FileExistsError(errno.EEXIST, "is a file", path)
        self._power.spend()
        for names in (self._image._names, self._image._durable_names):
            names[parent][name] = None
            names[path] = {}

    def rename(self, old: str, new: str) -> None:
        self._power.spend()
        inode = self._image._file(old)
        replaced = self._image._find(new)
        self._image._rename(_Renaming(posixpath.split(old), posixpath.split(new), inode))
        if replaced is not None and replaced is not inode:
            self._image._used -= replaced.volatile.size
        self._trace.event(self._host, "FileRenamed", old=old, new=new)

    def unlink(self, path: str) -> None:
        self._power.spend()
        inode = self._image._file(path)
        self._image._rename(_Renaming(posixpath.split(path), None, None))
        self._image._used -= inode.volatile.size
        self._trace.event(self._host, "FileUnlinked", path=path)

    def sync_dir(self, path: str) -> None:
        self._power.spend()
        self._image._folder(path)
        count = self._image._sync_names(path)
        self._trace.event(self._host, "FolderSynced", path=path, names=count)

    def take_failing_sync(self) -> bool:
        """Return whether the present sync is to fail."""
        fails = self._image._failing_syncs > 0
        self._image._failing_syncs -= fails
        return fails

    def total_bytes(self, path: str) -> int:
        self._power.check()
        return self._image._capacity

    def free_bytes(self, path: str) -> int:
        self._power.check()
        if not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, "no such path", path)
        return self._image.free

    def sectors_read(self) -> int | None:
        return None

    def lock(self, path: str) -> DiskLock:
        holder = self._image._locks.get(path)
        if holder is not None and holder.on:
            raise BlockingIOError(errno.EAGAIN, "locked by another process", path)
        self.open(path, create=True)
        self._image._locks[path] = self._power
        return _SimLock(self._image._locks, path, self._power)


class _SimBoard:
    """Board whose stores no task waits for: they crash with the host, and are not separate crash points."""

    def __init__(self, disk: SimDisk, inode: _Inode, path: str) -> None:
        self._disk = disk
        self._inode = inode
        self._file = _SimFile(disk, inode, path, writable=True, direct=False)

    def store(self, offset: int, data: bytes) -> None:
        self._disk._power.check()
        inode = self._inode
        assert offset + len(data) <= inode.volatile.size, "a board does not grow"
        assert offset // SECTOR == (offset + len(data) - 1) // SECTOR, "a store stays within a sector"
        # A machine writes the page in its present state, so only the last store to a sector waits to be written.
        inode.changes = [change for change in inode.changes if change[1] is None or change[0] != offset]
        inode.change((offset, data))
        self._disk._image._dirty[inode.number] = inode

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class _SimLock:
    def __init__(self, locks: dict[str, Power], path: str, power: Power) -> None:
        self._locks = locks
        self._path = path
        self._power = power

    def release(self) -> None:
        if self._power.on and self._locks.get(self._path) is self._power:
            del self._locks[self._path]


class _SimFile:
    def __init__(self, disk: SimDisk, inode: _Inode, path: str, writable: bool, direct: bool) -> None:
        self._disk = disk
        self._image = disk._image
        self._power = disk._power
        self._inode = inode
        self._path = path
        self._writable = writable
        self._direct = direct
        self._open = True

    def pwrite(self, data: Buffer, offset: int) -> None:
        self.pwritev([data], offset)

    def pwritev(self, parts: Sequence[Buffer], offset: int) -> int:
        self._change()
        data = b"".join(parts)
        size = len(data)
        assert not self._direct or (offset % SECTOR == 0 and size % SECTOR == 0), f"{size} bytes at {offset}"
        room = self._image.free + max(0, self._inode.volatile.size - offset)
        if size > room:
            data = data[:room]
        if data:
            self._grow(offset + len(data))
            self._inode.change((offset, data))
        if size > room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
        return size

    def pwritev_sync(self, parts: Sequence[Buffer], offset: int) -> None:
        self.pwritev(parts, offset)
        try:
            self.sync()
        except OSError as error:
            raise NotSyncedError(*error.args) from error

    def pread(self, size: int, offset: int) -> bytes:
        self._look()
        return self._inode.volatile.read(offset, size)

    def sync(self) -> None:
        self._look()
        self._power.spend_sync()
        if self._disk.take_failing_sync():
            # The same as in Linux: the pages stay readable and count as clean, so no later sync will write them.
            self._inode.changes.clear()
            self._inode.failed = True
            raise OSError(errno.EIO, os.strerror(errno.EIO), self._path)
        count = self._inode.sync()
        if not self._inode.failed:
            self._image._dirty.pop(self._inode.number, None)
        self._disk._trace.event(
            self._disk._host, "FileSynced", path=self._path, writes=count, size=self._inode.volatile.size
        )

    def size(self) -> int:
        self._look()
        return self._inode.volatile.size

    def forget(self, offset: int, size: int) -> None:
        self._look()

    def truncate(self, size: int) -> None:
        self._change()
        self._grow(size)
        self._image._used -= max(0, self._inode.volatile.size - size)
        self._inode.change((size, None))

    def preallocate(self, offset: int, size: int) -> None:
        self._change()
        if offset + size > self._inode.volatile.size:
            self._grow(offset + size)
            self._inode.change((offset + size, None))

    def close(self) -> None:
        self._open = False

    def _look(self) -> None:
        self._power.check()
        if not self._open:
            raise OSError(errno.EBADF, "the file is closed", self._path)

    def _change(self) -> None:
        self._look()
        if not self._writable:
            raise OSError(errno.EBADF, "the file is open for reading only", self._path)
        self._power.spend()
        self._image._dirty[self._inode.number] = self._inode

    def _grow(self, size: int) -> None:
        """Take the additional bytes of a file of `size`, or raise ENOSPC."""
        more = max(0, size - self._inode.volatile.size)
        if more > self._image.free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
        self._image._used += more

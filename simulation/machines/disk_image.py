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

from quire.world.doors import Buffer
from simulation.machines.folder_faults import FolderFaults
from simulation.machines.folder_moves import FolderMove
from simulation.machines.power import Power

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


class Inode:
    """A file, without its name."""

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


_Names: TypeAlias = dict[str, dict[str, "Inode | None"]]
"""Folder path -> name -> file, or None for a folder in it."""


@dataclass(frozen=True, slots=True)
class Renaming:
    """A change of names: `removed` (folder, name), `added` likewise with the file that it now names."""

    removed: tuple[str, str] | None
    added: tuple[str, str] | None
    inode: Inode | None

    def apply(self, names: _Names) -> None:
        if self.removed is not None:
            names[self.removed[0]].pop(self.removed[1], None)
        if self.added is not None:
            names[self.added[0]][self.added[1]] = self.inode

    def touched(self) -> list[tuple[str, str]]:
        return [place for place in (self.removed, self.added) if place is not None]

    def after(self, move: FolderMove) -> Renaming:
        """Return the same change as it is after `move`, which came later and is durable."""
        removed, added = [place and (move.after(place[0]), place[1]) for place in (self.removed, self.added)]
        return Renaming(removed, added, self.inode)


class DiskImage:
    """Disk of a machine, across crashes; tests and the nemesis damage it here."""

    def __init__(self) -> None:
        self.names: _Names = {"/": {}}
        """Names that can be seen."""
        self.durable_names: _Names = {"/": {}}
        """Names that a crash leaves, whatever it draws."""
        self._renamings: list[Renaming | FolderMove] = []
        self.dirty: dict[int, Inode] = {}
        """Files with changes that are not durable, by number."""
        self._inodes = 0
        self.used = 0
        """Bytes of all files that can be seen."""
        self.capacity = _PLENTY
        self.failing_syncs = 0
        """Syncs to come that fail."""
        self.failing_reads = 0
        """Reads of entry logs to come that fail."""
        self.locks: dict[str, Power] = {}
        """Power of the incarnation that holds a lock, by path."""
        self.folders = FolderFaults()
        """Faults of single folders."""

    # Damage

    def limit(self, free: int | None) -> None:
        """Limit further writes to `free` bytes (None: plenty)."""
        self.capacity = _PLENTY if free is None else self.used + free

    @property
    def is_limited(self) -> bool:
        """Return whether `limit` holds."""
        return self.capacity < _PLENTY

    def fail_syncs(self, count: int = 1) -> None:
        """The next `count` syncs of files or maps raise EIO, and what they should have made durable never will be."""
        self.failing_syncs = count

    def fail_reads(self, count: int = 1) -> None:
        """The next `count` reads of entry logs raise EIO."""
        self.failing_reads = count

    def flip(self, path: str, offset: int, bit: int) -> None:
        """Flip one bit (0-7) of the byte at `offset`, wherever it is kept."""
        inode = self.file(path)
        for content in (inode.volatile, inode.durable):
            if offset < content.size:
                content.write(offset, bytes([content.read(offset, 1)[0] ^ 1 << bit]))

    def overwrite(self, path: str, offset: int, data: bytes) -> None:
        """Overwrite bytes, wherever they are kept; the file keeps its length."""
        inode = self.file(path)
        for content in (inode.volatile, inode.durable):
            piece = data[: max(0, content.size - offset)]
            if piece:
                content.write(offset, piece)

    def remove(self, path: str) -> None:
        """Remove a file, durably."""
        self.used -= self.file(path).volatile.size
        folder, name = posixpath.split(path)
        for names in (self.names, self.durable_names):
            names.get(folder, {}).pop(name, None)

    def fork(self) -> DiskImage:
        """Return another disk with everything readable from this one, all of it durable, without locks."""
        twin = DiskImage()
        twin.names = {folder: dict(names) for folder, names in self.names.items()}
        for names in twin.names.values():
            for name, inode in names.items():
                if inode is not None:
                    copy = names[name] = Inode(inode.number)
                    copy.volatile = inode.volatile.copy()
                    copy.durable = inode.volatile.copy()
        twin.durable_names = {folder: dict(names) for folder, names in twin.names.items()}
        twin._inodes = self._inodes
        twin.used = self.used
        return twin

    def cut(self, path: str, size: int) -> None:
        """Shorten (or lengthen) a file, durably."""
        inode = self.file(path)
        self.used += size - inode.volatile.size
        inode.sync()
        inode.volatile.resize(size)
        inode.durable.resize(size)

    def crash(self, rng: random.Random) -> Dropped:
        """Drop what was not durable, except what `rng` lets survive."""
        draw = rng.random()
        kept = 0 if draw < 0.5 else len(self._renamings) if draw < 0.7 else rng.randint(0, len(self._renamings))
        lost_names = len(self._renamings) - kept
        for renaming in self._renamings[:kept]:
            renaming.apply(self.durable_names)
        self._renamings.clear()
        self.names = {folder: dict(names) for folder, names in self.durable_names.items()}
        lost_writes = lost_bytes = 0
        for number in sorted(self.dirty):
            writes, size = self.dirty[number].crash(rng)
            lost_writes += writes
            lost_bytes += size
        self.dirty.clear()
        self.used = sum(
            inode.volatile.size for names in self.names.values() for inode in names.values() if inode is not None
        )
        return Dropped(writes=lost_writes, bytes=lost_bytes, names=lost_names)

    # Used by the door and the tests

    def read(self, path: str) -> bytes:
        content = self.file(path).volatile
        return content.read(0, content.size)

    def paths(self) -> list[str]:
        """Return all files, sorted."""
        return sorted(
            posixpath.join(folder, name)
            for folder, names in self.names.items()
            for name, inode in names.items()
            if inode is not None
        )

    @property
    def free(self) -> int:
        return max(0, self.capacity - self.used)

    def folder(self, path: str) -> dict[str, Inode | None]:
        try:
            return self.names[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such folder", path) from None

    def find(self, path: str) -> Inode | None:
        folder, name = posixpath.split(path)
        inode = self.folder(folder).get(name)
        if inode is None and path in self.names:
            raise IsADirectoryError(errno.EISDIR, "is a folder", path)
        return inode

    def file(self, path: str) -> Inode:
        inode = self.find(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return inode

    def add(self, path: str) -> Inode:
        """Return a new, empty file of this name."""
        self._inodes += 1
        inode = Inode(self._inodes)
        self.rename(Renaming(None, posixpath.split(path), inode))
        return inode

    def rename(self, renaming: Renaming) -> None:
        self._renamings.append(renaming)
        renaming.apply(self.names)

    def move_folder(self, old: str, new: str) -> None:
        """Give a folder another name, which no folder has that is not empty. Maps in it stay where they are."""
        if self.names.get(new):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), new)
        if new in self.names:
            self.remove_folder(new)
        move = FolderMove(old, new)
        self._renamings.append(move)
        move.apply(self.names)

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder, durably, as a folder is made durably; so are the removals of the names in it."""
        self.sync_names(path)
        parent, name = posixpath.split(path)
        for names in (self.names, self.durable_names):
            names[parent].pop(name, None)
            names.pop(path, None)

    def sync_names(self, folder: str) -> int:
        """Make durable the changes of names in `folder`, and earlier ones of the same files on which they depend."""
        chosen: list[Renaming | FolderMove] = []
        left: list[Renaming | FolderMove] = []
        needed: dict[tuple[str, str], None] = {}
        moves: list[FolderMove] = []
        for change in reversed(self._renamings):
            touched = change.touched()
            depends = any(place[0] == folder or place in needed for place in touched)
            if isinstance(change, FolderMove):
                depends = depends or bool(moves) or any(map(change.holds, (folder, *(each for each, _ in needed))))
            if not depends:
                left.append(change if isinstance(change, FolderMove) else _after(change, moves))
                continue
            chosen.append(change)
            needed.update(dict.fromkeys(touched))
            if isinstance(change, FolderMove):
                moves.append(change)
                folder = change.before(folder)
                needed = {(change.before(each), name): None for each, name in needed}
        for change in reversed(chosen):
            change.apply(self.durable_names)
        self._renamings = left[::-1]
        return len(chosen)


def _after(change: Renaming, moves: Sequence[FolderMove]) -> Renaming:
    """Return a change as it is after later moves, the last one first."""
    for move in reversed(moves):
        change = change.after(move)
    return change

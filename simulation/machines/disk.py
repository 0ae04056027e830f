"""Simulated disk of one incarnation of a host: files, boards and locks on a `DiskImage`.

Each call that changes something is a point at which the host may crash.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Sequence

from quire.world.doors import Board, Buffer, DiskLock, File, NotSyncedError
from simulation.machines.disk_image import SECTOR, DiskImage, Inode, Renaming
from simulation.machines.power import Power
from simulation.machines.trace import Trace


class SimDisk:
    """The disk door of one incarnation of a host."""

    def __init__(self, image: DiskImage, power: Power, trace: Trace, host: str) -> None:
        self._image = image
        self._power = power
        self._trace = trace
        self._host = host

    def _reach(self, path: str) -> None:
        """Meet the faults of the folder of `path`: see `FolderFaults`."""
        if self._image.folders.any:
            self._image.folders.reach(path, self._power.check)

    def open(
        self, path: str, *, create: bool = False, writable: bool = True, direct: bool = False, scattered: bool = False
    ) -> File:
        self._power.check()
        self._reach(path)
        inode = self._image.find(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._power.spend()
            inode = self._image.add(path)
        return SimFile(self, inode, path, writable, direct)

    def read(self, path: str) -> bytes:
        self._power.check()
        self._reach(path)
        return self._image.read(path)

    def board(self, path: str) -> Board:
        self._power.check()
        return _SimBoard(self, self._image.file(path), path)

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
        self._reach(path)
        folder, name = posixpath.split(path)
        return path in self._image.names or name in self._image.names.get(folder, {})

    def names(self, path: str) -> list[str]:
        self._power.check()
        self._reach(path)
        return sorted(self._image.folder(path))

    def make_dirs(self, path: str) -> None:
        self._power.check()
        self._reach(path)
        if path in self._image.names:
            return
        parent, name = posixpath.split(path)
        self.make_dirs(parent)
        if self._image.find(path) is not None:
            raise FileExistsError(errno.EEXIST, "is a file", path)
        self._power.spend()
        for names in (self._image.names, self._image.durable_names):
            names[parent][name] = None
            names[path] = {}

    def rename(self, old: str, new: str) -> None:
        self._reach(old)
        self._power.spend()
        if old in self._image.names:
            self._image.move_folder(old, new)
            self._trace.event(self._host, "FolderRenamed", old=old, new=new)
            return
        inode = self._image.file(old)
        replaced = self._image.find(new)
        self._image.rename(Renaming(posixpath.split(old), posixpath.split(new), inode))
        if replaced is not None and replaced is not inode:
            self._image.used -= replaced.volatile.size
        self._trace.event(self._host, "FileRenamed", old=old, new=new)

    def unlink(self, path: str) -> None:
        self._reach(path)
        self._power.spend()
        inode = self._image.file(path)
        self._image.rename(Renaming(posixpath.split(path), None, None))
        self._image.used -= inode.volatile.size
        self._trace.event(self._host, "FileUnlinked", path=path)

    def link(self, old: str, new: str) -> None:
        self._reach(old)
        self._power.spend()
        inode = self._image.file(old)
        if self.exists(new):
            raise FileExistsError(errno.EEXIST, "exists", new)
        self._image.rename(Renaming(None, posixpath.split(new), inode))
        self._image.used += inode.volatile.size
        self._trace.event(self._host, "FileLinked", old=old, new=new)

    def remove_dir(self, path: str) -> None:
        self._reach(path)
        self._power.spend()
        if self._image.folder(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self._image.remove_folder(path)
        self._trace.event(self._host, "FolderRemoved", path=path)

    def sync_dir(self, path: str) -> None:
        self._reach(path)
        self._power.spend()
        self._image.folder(path)
        count = self._image.sync_names(path)
        self._trace.event(self._host, "FolderSynced", path=path, names=count)

    def take_failing_sync(self, path: str) -> bool:
        """Return whether the present sync of `path` is to fail."""
        if self._image.folders.is_broken(path):
            return True
        fails = self._image.failing_syncs > 0
        self._image.failing_syncs -= fails
        return fails

    def total_bytes(self, path: str) -> int:
        self._power.check()
        return self._image.capacity

    def free_bytes(self, path: str) -> int:
        self._power.check()
        folder, name = posixpath.split(path)
        if path not in self._image.names and name not in self._image.names.get(folder, {}):
            raise FileNotFoundError(errno.ENOENT, "no such path", path)
        return self.room(path)

    def room(self, path: str) -> int:
        """Return the bytes by which files in the folder of `path` can grow."""
        return 0 if self._image.folders.is_full(path) else self._image.free

    def device(self, path: str) -> int:
        self._power.check()
        if not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, "no such path", path)
        return 0

    def sectors_read(self) -> int | None:
        return None

    def files_kept_open(self) -> int:
        return 64

    def lock(self, path: str) -> DiskLock:
        holder = self._image.locks.get(path)
        if holder is not None and holder.on:
            raise BlockingIOError(errno.EAGAIN, "locked by another process", path)
        self.open(path, create=True)
        self._image.locks[path] = self._power
        return _SimLock(self._image.locks, path, self._power)


class _SimBoard:
    """Board whose stores no task waits for: they crash with the host, and are not separate crash points."""

    def __init__(self, disk: SimDisk, inode: Inode, path: str) -> None:
        self._disk = disk
        self._inode = inode
        self._file = SimFile(disk, inode, path, writable=True, direct=False)

    def store(self, offset: int, data: bytes) -> None:
        self._disk._power.check()
        inode = self._inode
        assert offset + len(data) <= inode.volatile.size, "a board does not grow"
        assert offset // SECTOR == (offset + len(data) - 1) // SECTOR, "a store stays within a sector"
        # A machine writes the page in its present state, so only the last store to a sector waits to be written.
        inode.changes = [change for change in inode.changes if change[1] is None or change[0] != offset]
        inode.change((offset, data))
        self._disk._image.dirty[inode.number] = inode

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


class SimFile:
    def __init__(self, disk: SimDisk, inode: Inode, path: str, writable: bool, direct: bool) -> None:
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
        room = self._disk.room(self._path) + max(0, self._inode.volatile.size - offset)
        if size > room:
            data = data[:room]
        if data:
            self._grow(offset + len(data))
            self._inode.change((offset, data))
        if size > room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
        return size

    def pwritev_past_cache(self, parts: Sequence[Buffer], offset: int) -> int:
        return self.pwritev(parts, offset)

    def pwritev_sync(self, parts: Sequence[Buffer], offset: int) -> None:
        self.pwritev(parts, offset)
        try:
            self.sync()
        except OSError as error:
            raise NotSyncedError(*error.args) from error

    def pread(self, size: int, offset: int) -> bytes:
        self._look()
        if self._image.failing_reads and self._path.endswith(".log"):
            self._image.failing_reads -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), self._path)
        return self._inode.volatile.read(offset, size)

    def sync(self) -> None:
        self._check_open()
        self._image.folders.wait(self._path, self._power.check)
        self._power.spend_sync()
        if self._disk.take_failing_sync(self._path):
            # The same as in Linux: the pages stay readable and count as clean, so no later sync will write them.
            self._inode.changes.clear()
            self._inode.failed = True
            raise OSError(errno.EIO, os.strerror(errno.EIO), self._path)
        count = self._inode.sync()
        if not self._inode.failed:
            self._image.dirty.pop(self._inode.number, None)
        self._disk._trace.event(
            self._disk._host, "FileSynced", path=self._path, writes=count, size=self._inode.volatile.size
        )

    def size(self) -> int:
        self._look()
        return self._inode.volatile.size

    def forget(self, offset: int, size: int) -> None:
        self._look()

    def advise(self, *, scattered: bool) -> None:
        self._look()

    def truncate(self, size: int) -> None:
        self._change()
        self._grow(size)
        self._image.used -= max(0, self._inode.volatile.size - size)
        self._inode.change((size, None))

    def preallocate(self, offset: int, size: int) -> None:
        self._change()
        if offset + size > self._inode.volatile.size:
            self._grow(offset + size)
            self._inode.change((offset + size, None))

    def close(self) -> None:
        self._open = False

    def _check_open(self) -> None:
        self._power.check()
        if not self._open:
            raise OSError(errno.EBADF, "the file is closed", self._path)

    def _look(self) -> None:
        self._check_open()
        self._disk._reach(self._path)

    def _change(self) -> None:
        self._look()
        if not self._writable:
            raise OSError(errno.EBADF, "the file is open for reading only", self._path)
        self._power.spend()
        self._image.dirty[self._inode.number] = self._inode

    def _grow(self, size: int) -> None:
        """Take the additional bytes of a file of `size`, or raise ENOSPC."""
        more = max(0, size - self._inode.volatile.size)
        if more > self._disk.room(self._path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
        self._image.used += more

"""DiskReserve: a file that only keeps room, given up when a disk is full. Blocking.

    <folder>/reserve    zeros, allocated; its name means nothing to the original, which passes over it

A crash may leave it shorter than it should be, or gone: it is put back when there is room.
"""

from __future__ import annotations

from quire.world.doors import Disk

NAME = "reserve"


class DiskReserve:
    """The reserve in one folder."""

    def __init__(self, disk: Disk, folder: str, size: int) -> None:
        self._disk = disk
        self._folder = folder
        self._path = f"{folder}/{NAME}"
        self.size = size
        """Bytes; 0: there is none, and it counts as held."""
        self.held = size == 0

    def find(self) -> None:
        """Look whether an earlier run left the file, whole. OSError."""
        if self.size and self._disk.exists(self._path):
            file = self._disk.open(self._path, writable=False)
            try:
                self.held = file.size() >= self.size
            finally:
                file.close()

    def take(self) -> bool:
        """Put the file there if it is not; whether it is there. Never leaves a part of it."""
        if self.held:
            return True
        try:
            file = self._disk.open(self._path, create=True)
            try:
                file.preallocate(0, self.size)
                file.sync()
            finally:
                file.close()
            self._disk.sync_dir(self._folder)
        except OSError:
            self.release()
            return False
        self.held = True
        return True

    def release(self) -> None:
        """Give the room up. OSError is passed over: there is nothing else to give."""
        if not self.size:
            return
        self.held = False
        try:
            if self._disk.exists(self._path):
                self._disk.unlink(self._path)
        except OSError:
            pass

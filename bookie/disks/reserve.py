"""DiskReserve: a file that only keeps room; it is deleted when a disk is full. Blocking.

    <folder>/reserve    zeros, allocated; the original ignores a file of this name

A crash may leave it too short or missing. It is created again when there is room.
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
        """Size in bytes; 0: there is no reserve, and it counts as held."""
        self.held = size == 0

    def find(self) -> None:
        """Check whether an earlier run left the file, in full size. OSError."""
        if self.size and self._disk.exists(self._path):
            file = self._disk.open(self._path, writable=False)
            try:
                self.held = file.size() >= self.size
            finally:
                file.close()

    def take(self) -> bool:
        """Create the file if it is missing; return whether it exists now. Never leaves a part of it."""
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
        """Delete the file to free its room. OSError is ignored: there is nothing else to free."""
        if not self.size:
            return
        self.held = False
        try:
            if self._disk.exists(self._path):
                self._disk.unlink(self._path)
        except OSError:
            pass

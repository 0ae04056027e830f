"""LedgerDirectory: the disks of one ledger directory, with its room and its reserve. Blocking but for `take`."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from bookie.disks.reserve import DiskReserve
from bookie.disks.room import DiskRoom
from bookie.disks.usage import Space
from quire.world.doors import Disk


def space_of(disk: Disk, folder: str) -> Space:
    """Return the space of the file system of a folder, or of its nearest existing parent: nothing is created before it
    is certain that the bookie may start. OSError.
    """
    folder = existing(disk, folder)
    free = disk.free_bytes(folder)
    return Space(free, max(free, disk.total_bytes(folder)), disk.device(folder))


def existing(disk: Disk, folder: str) -> str:
    """Return the folder, or its nearest existing parent."""
    while folder != "/" and not disk.exists(folder):
        folder = posixpath.dirname(folder)
    return folder


class LedgerDirectory:
    """State of one ledger directory."""

    def __init__(self, disk: Disk, folder: str, index_folder: str) -> None:
        self.folder = folder
        self.index_folder = index_folder
        self.room = DiskRoom(0, 0)
        """The decisions on its room. `prepare` replaces the object."""
        self._disk = disk
        self._reserve = DiskReserve(disk, folder, 0)
        self.free = 0
        """Bytes free on the fullest of its disks and those of the journals, as last measured."""

    @property
    def reserve_size(self) -> int:
        """Size in bytes of its reserve; 0: it has none."""
        return self._reserve.size

    @property
    def holds_reserve(self) -> bool:
        return self._reserve.held

    def prepare(self, reserve_size: int, journal_ahead: int) -> None:
        """Set the size of the reserve, and find the file of an earlier run. `journal_ahead`: of all journals."""
        self.room = DiskRoom(reserve_size, journal_ahead)
        self._reserve = DiskReserve(self._disk, self.folder, reserve_size)
        self._reserve.find()

    def spaces(self) -> tuple[Space, ...]:
        """Return the spaces of its entry logs and its indexes."""
        folders = (self.folder, self.index_folder)[: 1 + (self.index_folder != self.folder)]
        return tuple(space_of(self._disk, folder) for folder in folders)

    def fullest(self, journals: Sequence[Space]) -> int:
        """Return the bytes free on the fullest of its disks and those of the journals, and note them."""
        self.free = min(space.free for space in (*self.spaces(), *journals))
        return self.free

    def keep_reserve(self, free: int, unflushed: int) -> None:
        """Release the reserve if its room is needed, or take it again if there is enough."""
        if self.holds_reserve:
            if self.reserve_size and self.room.needs_reserve(free, unflushed):
                self._reserve.release()
        elif self.room.may_take_reserve(free, unflushed, self.reserve_size):
            self._reserve.take()

"""DiskWatch: measures the disks of a bookie and does what `DiskRoom` decides.

While a disk is full the bookie is read-only, except for adds of high priority (recovery and cursors). Its journal
reserves no space ahead and keeps no files before the mark, so that the next checkpoint frees room.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from bookie.disks.reserve import DiskReserve
from bookie.disks.room import DiskRoom
from quire.service.log import get_logger
from quire.world.doors import World

if TYPE_CHECKING:
    from bookie.config import BookieConfig

log = get_logger(__name__)

LOOK_S: Final = 1.0
"""Seconds between two measurements while there is plenty of room."""
LOOK_OFTEN_S: Final = 0.1
"""Seconds between two measurements while there is little room."""
PLENTY: Final = 1 << 30
"""Bytes of free space that count as plenty: no more than this can be written between two measurements."""
DISK_PART: Final = 16
"""The reserve takes at most 1/DISK_PART of its disk, and so does the space that the journal reserves ahead."""
RETRY_S: Final = 1.0
"""Without a reserve: seconds from a failed write until the next add is accepted."""


class DiskWatch:
    """Disk watch of one bookie."""

    def __init__(self, world: World, config: BookieConfig) -> None:
        self._world = world
        self._folders = (config.ledger_directory, config.journal_directory)
        self._size_max = config.disk_reserve_mb << 20
        self.journal_ahead = config.journal_prealloc_mb << 20
        """Bytes that the journal may reserve ahead: the configured size, less on a small disk."""
        self.room = DiskRoom(0, 0)
        """The state of the disks, and the decisions on it. `make_room` replaces the object."""
        self._reserve = DiskReserve(world.disk, config.ledger_directory, 0)
        self._told_full = False
        self._started_full = False
        """True if the bookie was opened read-only for lack of room, which is not reported.

        If the first measurement finds room, that must be reported.
        """
        self._wake = trio.Event()
        self._failed_at = float("-inf")
        self._sizes: dict[str, tuple[int, int]] = {}
        self.unflushed: Callable[[], int] = lambda: 0
        """Bytes that are not in an entry log yet."""
        self.changed: Callable[[], None] = lambda: None
        """Called when `reason` has changed from or to ""."""

    def ran_out(self) -> None:
        """Measure soon: `room` has refused an add."""
        self._tell()
        self._wake.set()

    @property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """Return free bytes and size of the disk of each folder, as last measured: "ledgers", "journal"."""
        return self._sizes

    @property
    def reason(self) -> str:
        """Reason why adds are refused; "" while they are accepted."""
        return self.room.reason

    def make_room(self) -> None:
        """Release the reserve if startup has no room without it.

        Blocking; must be called before anything else is written.
        """
        disk, folder = self._world.disk, self._folders[0]
        part = disk.total_bytes(self._existing(folder)) // DISK_PART
        size = min(self._size_max, part)
        self.journal_ahead = min(self.journal_ahead, part)
        self.room = DiskRoom(size, self.journal_ahead)
        self._reserve = DiskReserve(disk, folder, size)
        self._reserve.find()
        free = self._free()
        self.room.measured(free, 0, reserve_held=self._reserve.held)
        if self._reserve.held and self.room.needs_reserve(free):
            self._reserve.release()
            log.warning("disk reserve released for startup", free=free, bytes=self._reserve.size)
        self._started_full = self.room.is_full

    def failed(self, error: str) -> None:
        """Record a write that failed, for lack of room or otherwise. Call it on the loop."""
        self.room.failed(error)
        self._failed_at = trio.current_time()
        self._tell()
        self._wake.set()

    async def run(self) -> None:
        """Measure the disks until cancelled."""
        while True:
            free = await self._look()
            with trio.move_on_after(LOOK_S if free > PLENTY and not self.room.is_full else LOOK_OFTEN_S):
                await self._wake.wait()
            self._wake = trio.Event()

    async def _look(self) -> int:
        unflushed = self.unflushed()
        room, reserve = self.room, self._reserve

        def look() -> int:
            free = self._free()
            if reserve.held and reserve.size and room.needs_reserve(free):
                reserve.release()
            elif not reserve.held and room.may_take_reserve(free, unflushed, reserve.size):
                reserve.take()
            return self._free()

        held = reserve.held
        free = await self._world.offload.run(look, name="disk room")
        if reserve.held and not held:
            room.reserve_taken()
        if held and not reserve.held:
            log.warning("disk reserve released", free=free, bytes=reserve.size)
        if not reserve.size and trio.current_time() < self._failed_at + RETRY_S:
            return free
        room.measured(free, unflushed, reserve_held=reserve.held)
        self._tell()
        return free

    def _tell(self) -> None:
        """Log and report a change once."""
        started_full, self._started_full = self._started_full, False
        if self.room.is_full == self._told_full and not started_full:
            return
        self._told_full = self.room.is_full
        if self._told_full:
            log.error("no room: refusing adds except for acknowledgements and recovery", reason=self.room.reason)
        else:
            log.info("room again: accepting adds")
        self.changed()

    def _free(self) -> int:
        """Return the bytes free on the fullest disk, and note the sizes of all."""
        disk = self._world.disk
        found = {}
        for name, folder in zip(("ledgers", "journal"), map(self._existing, self._folders), strict=True):
            free = disk.free_bytes(folder)
            found[name] = free, max(free, disk.total_bytes(folder))
        self._sizes = found
        return min(free for free, _ in found.values())

    def _existing(self, folder: str) -> str:
        """Return the folder, or its nearest existing parent: nothing is created before it is certain that the bookie
        may start.
        """
        while folder != "/" and not self._world.disk.exists(folder):
            folder = posixpath.dirname(folder)
        return folder

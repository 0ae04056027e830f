"""DiskWatch: measures the disks of a bookie and does what `DiskUsage` and `DiskRoom` decide.

A ledger directory is full if a threshold is passed (usage.py), or for lack of bytes (room.py), whichever comes first.
Its ledgers take no adds. By configuration, the whole bookie is read-only when one of its directories is full or when
all are. It is read-only as well while its flushes fail, whatever the reason. A read-only bookie accepts adds of high
priority (recovery and cursors) as long as there are bytes for them. Its journal reserves no space ahead and keeps no
files before the mark, so that the next checkpoint frees room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import trio

from bookie.config import BookieConfig
from bookie.disks.directory import LedgerDirectory, space_of
from bookie.disks.measuring import Measuring
from bookie.disks.room import Fullness
from bookie.disks.usage import DiskUsage, Space
from bookie.errors import DisksFullError
from quire.service.log import get_logger
from quire.world.doors import World

log = get_logger(__name__)

LOOK_S: Final = 1.0
"""Seconds between two measurements while there is plenty of room."""
LOOK_OFTEN_S: Final = 0.1
"""Seconds between two measurements while there is little room."""
PLENTY: Final = 1 << 30
"""Bytes of free space that count as plenty: no more than this can be written between two measurements."""
DISK_PART: Final = 16
"""The reserves take at most 1/DISK_PART of their disk, and so does the space that the journals reserve ahead."""
RETRY_S: Final = 1.0
"""Without a reserve: seconds from a failed write until the next add is accepted."""
EXAMINED_EVERY_S: Final = 60.0
"""Seconds between two log lines about disks that cannot be measured."""


class DiskWatch:
    """Disk watch of one bookie."""

    def __init__(self, world: World, config: BookieConfig) -> None:
        self._world = world
        self._config = config
        disk = world.disk
        self._directories = [
            LedgerDirectory(disk, *each) for each in zip(config.ledger_directories, config.indexes, strict=True)
        ]
        self._journals = config.journal_directories
        self._usage = DiskUsage(
            len(self._directories),
            threshold=config.disk_usage_threshold,
            warn_threshold=config.warn_threshold,
            low_water_mark=config.low_water_mark,
        )
        self.journal_ahead = config.journal_prealloc_mb << 20
        """Bytes that each journal may reserve ahead: the configured size, less on a small disk."""
        self._compared_at = float("-inf")
        self._told = False, False
        """The last report: whether there is a reason, and whether a directory is full."""
        self._told_almost = [False] * len(self._directories)
        self._started_full = False
        """True if the bookie was opened read-only for lack of room, or because it was read-only when it stopped, which
        is not reported.

        If the first measurement finds room, that must be reported.
        """
        self._wake = trio.Event()
        self._failed_at = float("-inf")
        self._flush_failures: dict[object, str] = {}
        self._unexamined = ""
        self._examined_at = float("-inf")
        self._sizes: dict[str, tuple[int, int]] = {}
        self.rooms = [each.room for each in self._directories]
        """Room of each ledger directory. An add for which there is no room is followed by `ran_out`."""
        self.directory_of: Callable[[int], int] = lambda ledger_id: ledger_id % len(self._directories)
        """Number of the directory of a ledger."""
        self.is_usable: Callable[[int], bool] = lambda number: True
        """Tells if a ledger directory can be used; one that cannot is not measured."""
        self.on_broken: Callable[[int, OSError], None] = lambda number, error: None
        """Called if one ledger directory of several cannot be measured."""
        self._first: tuple[list[tuple[Space, ...]], list[Space]] | None = None
        """The figures of `make_room`."""
        self._measuring: Measuring | None = None
        """The rounds of `run`, if there are several folders of a kind."""
        self._fullness = Fullness()
        self.why_full = self._fullness.why_full
        self.takes_urgent = True
        """True if adds of high priority are accepted."""
        self.unflushed: Callable[[], int] = lambda: 0
        """Bytes that are not in an entry log yet."""
        self.changed: Callable[[], None] = lambda: None
        """Called when `reason` has changed from or to "", or `is_full` has changed."""
        self.free_room: Callable[[], None] = lambda: None
        """Called when a directory has become full, after the reserves that are needed for it are released.

        A flush before that would find no room for what it writes.
        """
        self._looks = 0
        """Measurements begun."""
        self._full_since: int | None = None
        """`_looks` when a directory became full; None if `free_room` was called since."""
        self.measured: Callable[[], None] = lambda: None
        """Called after a measurement."""
        self.must_end = trio.Event()
        """Set when the disks are full and readOnlyModeEnabled=false. The server must stop."""

    # --- decisions

    def may_compact(self, directory: int) -> bool:
        """Return whether compaction of a full directory has the bytes that it needs before it frees any."""
        each, least = self._directories[directory], self._config.min_usable_for_entry_log
        return each.room.may_compact(each.free, self.unflushed()) if least is None else each.free > least

    def full_directory(self, directory: int) -> bool:
        """Return whether a ledger directory is full: compaction there needs isForceGCAllowWhenNoSpace."""
        return bool(self._directories[directory].room.reason)

    def almost_full(self, directory: int) -> bool:
        """Return whether a ledger directory is above diskUsageWarnThreshold: major compaction there waits."""
        return self._usage.almost_full(directory)

    @property
    def reason(self) -> str:
        """Reason why the bookie is read-only; "" while it is not for its disks."""
        return self._fullness.reason

    @property
    def is_full(self) -> bool:
        """Return whether a ledger directory is full."""
        return any(each.room.reason for each in self._directories)

    @property
    def is_almost_full(self) -> bool:
        """Return whether a ledger directory is full or above diskUsageWarnThreshold."""
        return self.is_full or any(self._usage.almost_full(number) for number in range(len(self._directories)))

    @property
    def writable_directories(self) -> int:
        """Number of ledger directories that are not full."""
        return sum(not each.room.reason for each in self._directories)

    @property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """Return free bytes and size of the disk of each folder, as last measured: "ledgers", "journal"; with numbers
        from 1 if there are several of a kind.
        """
        return self._sizes

    @property
    def flushes_fail(self) -> bool:
        """Return whether the bookie is read-only because its flushes fail."""
        return bool(self._flush_failures)

    # --- what happened

    def ran_out(self) -> None:
        """Measure soon: a room has no place for an add."""
        self._wake.set()

    def failed(self, error: str) -> None:
        """Record a write that found no room on any disk. Call it on the loop."""
        for each in self._directories:
            each.room.failed(error)
        self._failed_at = trio.current_time()
        self._tell()
        self._wake.set()

    def directory_ran_out(self, number: int, error: str) -> None:
        """Record a flush of one ledger directory that found no room. The others go on."""
        self.rooms[number].failed(error)
        self._failed_at = trio.current_time()
        self._tell()
        self._wake.set()

    def flush_failed(self, key: object, error: str, *, no_room: bool) -> None:
        """Record a flush that failed: the bookie is read-only until one with that key passes. `no_room`: that was the
        reason.
        """
        self._flush_failures[key] = error
        if no_room:
            self.failed(error)
        else:
            self._tell()

    def flushed(self, key: object) -> None:
        """Record a flush that passed."""
        if self._flush_failures.pop(key, None) is not None:
            self._tell()

    def was_read_only(self) -> None:
        """Begin read-only, as the bookie stopped, until the disks are below the low-water mark."""
        self._usage.fill()
        self._apply_usage()
        self._started_full = True
        self._fullness.reason = self._why_read_only()

    # --- measuring

    def make_room(self) -> None:
        """Release reserves if startup has no room without them.

        Blocking; must be called before anything else is written. DisksFullError.
        """
        self._first = self._measure()
        spaces, journals = self._first
        devices = Counter(each[0].device for each in spaces)
        for each, on_disks in zip(self._directories, spaces, strict=True):
            ledgers = on_disks[0]
            part = ledgers.total // DISK_PART // devices[ledgers.device]
            self.journal_ahead = min(self.journal_ahead, ledgers.total // DISK_PART // len(self._journals))
            each.prepare(min(self._config.disk_reserve_mb << 20, part), self.journal_ahead * len(self._journals))
            free = each.fullest(journals)
            each.room.measured(free, 0, reserve_held=each.holds_reserve)
            if each.holds_reserve and each.reserve_size:
                each.keep_reserve(free, 0)
                if not each.holds_reserve:
                    log.warning("disk reserve released for startup", free=free, bytes=each.reserve_size)
        self.rooms = [each.room for each in self._directories]
        self._usage.measured(spaces)
        self._apply_usage()
        self._fullness.reason = self._why_read_only()
        self._started_full = bool(self.reason)
        if self.reason and not self._config.read_only_mode_enabled:
            raise DisksFullError(f"the disks are full, and readOnlyModeEnabled=false: {self.reason}")

    async def run(self) -> None:
        """Measure the disks until cancelled."""
        async with trio.open_nursery() as nursery:
            if len(self._directories) > 1 or len(self._journals) > 1:
                if self._first is None:
                    self._first = await self._world.offload.run(self._measure, name="disk room")
                spaces, journals = self._first
                self._measuring = Measuring(self._world, nursery, self._directories, self._journals, spaces, journals)
            await self._measure_often()

    async def _measure_often(self) -> None:
        while True:
            free = await self._look()
            self.measured()
            wait = LOOK_S if free > PLENTY and not self.reason else LOOK_OFTEN_S
            with trio.move_on_after(min(wait, self._config.disk_check_interval_ms / 1000)):
                await self._wake.wait()
            self._wake = trio.Event()

    async def _look(self) -> int:
        """Measure once, and return the bytes free on the fullest disk."""
        self._looks += 1
        unflushed = self.unflushed()
        directories = self._directories
        for each in directories:
            each.room.began()

        def look() -> Sequence[Sequence[Space]]:
            spaces, journals = self._measure()
            for each in directories:
                each.keep_reserve(each.fullest(journals), unflushed)
            if held != [each.holds_reserve for each in directories]:
                spaces, journals = self._measure()
                for each in directories:
                    each.fullest(journals)
            return spaces

        held = [each.holds_reserve for each in directories]
        try:
            if self._measuring is not None:
                spaces = await self._look_apart(self._measuring, unflushed)
            else:
                spaces = await self._world.offload.run(look, name="disk room")
        except OSError as error:
            self._cannot_examine(error)
            return 0
        self._unexamined = ""
        waits = trio.current_time() < self._failed_at + RETRY_S
        for each, held_before in zip(directories, held, strict=True):
            if each.holds_reserve and not held_before:
                each.room.reserve_taken()
            if held_before and not each.holds_reserve:
                log.warning("disk reserve released", free=each.free, bytes=each.reserve_size)
            if each.reserve_size or not waits:
                each.room.measured(each.free, unflushed, reserve_held=each.holds_reserve)
        self._compare(spaces)
        self._tell()
        # A measurement that had begun before the directory was full may have left its reserve alone.
        if self._full_since is not None and self._full_since < self._looks:
            self._full_since = None
            self.free_room()
        return min(each.free for each in directories)

    async def _look_apart(self, measuring: Measuring, unflushed: int) -> Sequence[Sequence[Space]]:
        """Measure all folders, each apart. OSError: none of a kind could be measured."""
        numbers = range(len(self._directories))
        failed = await measuring.round([number for number in numbers if self.is_usable(number)], unflushed)
        if len(failed) == len(numbers):
            raise failed[0]
        for number, error in failed.items():
            self.on_broken(number, error)
        self._note([each[0] for each in measuring.spaces], measuring.journals)
        return measuring.spaces

    def _measure(self) -> tuple[list[tuple[Space, ...]], list[Space]]:
        """Return the spaces of each ledger directory and of the journals, and note the sizes. Blocking. OSError."""
        spaces = [each.spaces() for each in self._directories]
        journals = [space_of(self._world.disk, folder) for folder in self._journals]
        self._note([each[0] for each in spaces], journals)
        return spaces, journals

    def _note(self, ledgers: Sequence[Space], journals: Sequence[Space]) -> None:
        found: dict[str, tuple[int, int]] = {}
        for kind, measured in (("ledgers", ledgers), ("journal", journals)):
            for number, space in enumerate(measured, 1):
                found[kind if len(measured) == 1 else f"{kind}-{number}"] = space.free, space.total
        self._sizes = found

    def _cannot_examine(self, error: OSError) -> None:
        self._unexamined = f"a disk cannot be examined: {error}"
        if trio.current_time() >= self._examined_at + EXAMINED_EVERY_S:
            self._examined_at = trio.current_time()
            log.error("disks cannot be examined, retrying", reason=str(error))
        self._tell()

    def _compare(self, spaces: Sequence[Sequence[Space]]) -> None:
        """Compare with the thresholds, if it is time."""
        now = trio.current_time()
        if now < self._compared_at + self._config.disk_check_interval_ms / 1000 and not any(self._usage.full):
            return
        self._compared_at = now
        self._usage.measured(spaces)
        self._apply_usage()
        for number, each in enumerate(self._directories):
            almost = self._usage.almost_full(number)
            if almost and not self._told_almost[number] and not self._usage.full[number]:
                log.warning("disk almost full", folder=each.folder, used=round(self._usage.used[number], 4))
            self._told_almost[number] = almost

    def _apply_usage(self) -> None:
        for number, each in enumerate(self._directories):
            each.room.threshold(self._usage.why_full(number))

    # --- the state of the bookie

    def _why_read_only(self) -> str:
        if self._unexamined or self._flush_failures:
            return self._unexamined or next(iter(self._flush_failures.values()))
        full = [each for each in self._directories if each.room.reason]
        if not full or (len(full) < len(self._directories) and not self._config.read_only_on_any_full):
            return ""
        reason = full[0].room.reason
        return reason if len(self._directories) == 1 else f"{full[0].folder}: {reason}"

    def _tell(self) -> None:
        """Log and report a change once."""
        started_full, self._started_full = self._started_full, False
        self._fullness.reason = self._why_read_only()
        least = self._config.min_usable_for_urgent
        self.takes_urgent = not self.reason or least is None or any(each.free > least for each in self._directories)
        told_reason, told_full = self._told
        self._told = bool(self.reason), self.is_full
        if self._told == (told_reason, told_full) and not started_full:
            return
        if self.reason and not told_reason:
            if self.is_full or not self._flush_failures:
                log.error("no room: refusing adds except for acknowledgements and recovery", reason=self.reason)
            else:
                log.error("flushes fail: refusing adds except for acknowledgements and recovery", reason=self.reason)
        elif not self.reason and (told_reason or started_full):
            log.info("room again: accepting adds")
        elif self.is_full != told_full and not self.reason:
            full = " ".join(each.folder for each in self._directories if each.room.reason)
            log.warning("ledger directories are full, refusing their ledgers", folders=full or "none")
        if self.reason and not self._config.read_only_mode_enabled:
            log.error("the bookie ends, because readOnlyModeEnabled=false", reason=self.reason)
            self.must_end.set()
        if self.is_full:
            self._full_since = self._looks
            self._wake.set()
        self.changed()

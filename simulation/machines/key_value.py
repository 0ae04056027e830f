"""The simulated ordered map: durable state, and the unsynced batches after it, of which a crash keeps a prefix."""

from __future__ import annotations

import errno
import os
import random
from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice
from typing import TypeAlias

from quire.world.damage import DamagedError, Finding
from quire.world.doors import Batch, KeyValue, NotSyncedError
from quire.world.map_tuning import DEFAULT_TUNING, MapTuning
from simulation.machines.disk import SimDisk
from simulation.machines.power import Power
from simulation.machines.trace import Trace

_Change: TypeAlias = tuple[bytes, bytes | None, bytes | None]
"""(key, value, None): put; (key, None, None): delete; (start, None, stop): delete the range."""

_SCAN_RUN = 64
"""Keys that a scan looks up at a time, since it must allow changes to the map meanwhile."""


class _Table:
    """A sorted map of bytes."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.keys: list[bytes] = []

    def apply(self, changes: list[_Change]) -> None:
        for key, value, stop in changes:
            if value is not None:
                if key not in self.values:
                    insort(self.keys, key)
                self.values[key] = value
            else:
                first = bisect_left(self.keys, key)
                last = bisect_left(self.keys, stop if stop is not None else key + b"\0")
                for gone in self.keys[first:last]:
                    del self.values[gone]
                del self.keys[first:last]

    def copy(self) -> _Table:
        twin = _Table()
        twin.values = dict(self.values)
        twin.keys = list(self.keys)
        return twin


class _Map:
    """One map of a machine."""

    def __init__(self) -> None:
        self.live = _Table()
        self.durable = _Table()
        self.unsynced: list[list[_Change]] = []
        self.opened_by: Power | None = None
        self.base = _Table()
        """Durable content at the last opening: RocksDB has it in files of its own."""
        self.log: list[list[_Change]] = []
        """Batches synced since."""
        self.damaged_at = -1
        """The batch of the log that is damaged, -1 if none is."""

    def reopened(self) -> None:
        """Write the log to files, and start a new one."""
        self.base = self.durable.copy()
        self.log = []

    def fork(self) -> _Map:
        twin = _Map()
        twin.live, twin.durable, twin.base = self.live.copy(), self.live.copy(), self.base.copy()
        twin.log = [*self.log, *self.unsynced]
        return twin

    def crash(self, rng: random.Random) -> int:
        draw = rng.random()
        kept = 0 if draw < 0.4 else rng.randint(0, len(self.unsynced))
        lost = len(self.unsynced) - kept
        for batch in self.unsynced[:kept]:
            self.durable.apply(batch)
        self.log += self.unsynced[:kept]
        self.unsynced.clear()
        self.live = self.durable.copy()
        return lost


class MapImages:
    """All maps of one machine, by folder."""

    def __init__(self) -> None:
        self._maps: dict[str, _Map] = {}

    def crash(self, rng: random.Random) -> int:
        """Drop unsynced batches of each map, except for a prefix; return how many were lost."""
        return sum(self._maps[path].crash(rng) for path in sorted(self._maps))

    def fork(self) -> MapImages:
        """Return other maps with the same visible content, all of it durable."""
        twin = MapImages()
        twin._maps = {path: image.fork() for path, image in self._maps.items()}
        return twin

    def paths(self) -> list[str]:
        """Return the folders of all maps, sorted."""
        return sorted(self._maps)

    def remove(self, path: str) -> None:
        """Remove a map, with its folder's files."""
        del self._maps[path]

    def damage(self, rng: random.Random) -> str | None:
        """Damage the log of one map in the middle of its content; return its folder, None if every log is empty."""
        paths = [path for path in sorted(self._maps) if self._maps[path].log]
        if not paths:
            return None
        path = rng.choice(paths)
        self._maps[path].damaged_at = rng.randrange(len(self._maps[path].log))
        return path

    def unsynced(self) -> int:
        """Return the number of batches that a crash could drop now."""
        return sum(len(image.unsynced) for image in self._maps.values())


def meet_damage(image: _Map, path: str) -> None:
    """Handle a damaged log as the real map does: its synced bytes contradict its witness."""
    raise DamagedError(Finding(f"{path}/{image.damaged_at:06}.log", "is damaged"))


def tolerate_damage(image: _Map, path: str) -> None:
    """Handle a damaged log as RocksDB does by default: it ends at the damage. For a planted bug."""
    image.durable = image.base.copy()
    for changes in image.log[: image.damaged_at]:
        image.durable.apply(changes)
    image.live = image.durable.copy()
    image.damaged_at = -1


class SimKeyValueMaker:
    """The key_value door of one incarnation of a host."""

    def __init__(self, images: MapImages, disk: SimDisk, power: Power, trace: Trace, host: str) -> None:
        self._images = images
        self._disk = disk
        self._power = power
        self._trace = trace
        self._host = host

    def open(
        self,
        path: str,
        *,
        create: bool = True,
        cache_bytes: int = 8 << 20,
        write_buffer_bytes: int = 16 << 20,
        tuning: MapTuning = DEFAULT_TUNING,
    ) -> KeyValue:
        self._power.check()
        self._disk._reach(path)
        image = self._images._maps.get(path)
        if image is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no key-value map in this folder", path)
            self._disk.make_dirs(path)
            image = self._images._maps[path] = _Map()
        if image.opened_by is not None and image.opened_by.on:
            raise BlockingIOError(errno.EAGAIN, "the map is open already", path)
        if image.damaged_at >= 0:
            meet_damage(image, path)
        image.reopened()
        image.opened_by = self._power
        return _SimKeyValue(self, image, path)


class _SimBatch:
    def __init__(self) -> None:
        self.changes: list[_Change] = []
        self.size = 0

    def put(self, key: bytes, value: bytes) -> None:
        self.changes.append((key, value, None))
        self.size += len(key) + len(value)

    def delete(self, key: bytes) -> None:
        self.changes.append((key, None, None))
        self.size += len(key)

    def delete_range(self, start: bytes, stop: bytes) -> None:
        self.changes.append((start, None, max(start, stop)))
        self.size += len(start) + len(stop)


class _SimKeyValue:
    def __init__(self, maker: SimKeyValueMaker, image: _Map, path: str) -> None:
        self._maker = maker
        self._power = maker._power
        self._image = image
        self._path = path
        self._open = True
        self._failed = False
        self.noticed: tuple[Finding, ...] = ()

    def get(self, key: bytes) -> bytes | None:
        self._look()
        return self._image.live.values.get(key)

    def batch(self) -> Batch:
        return _SimBatch()

    def write(self, batch: Batch, *, sync: bool) -> None:
        self._check_open()
        self._maker._disk._image.folders.wait(self._path, self._power.check)
        self._power.spend()
        assert isinstance(batch, _SimBatch), "a batch of another map maker"
        if self._failed:
            raise self._not_synced()
        if batch.size > self._maker._disk.room(self._path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
        image = self._image
        if batch.changes:
            image.live.apply(batch.changes)
            image.unsynced.append(list(batch.changes))
        if sync:
            if self._maker._disk.take_failing_sync(self._path):
                self._failed = True
                raise self._not_synced()
            for changes in image.unsynced:
                image.durable.apply(changes)
            count = len(image.unsynced)
            image.log += image.unsynced
            image.unsynced.clear()
            self._maker._trace.event(self._maker._host, "MapSynced", path=self._path, batches=count)

    def _not_synced(self) -> NotSyncedError:
        return NotSyncedError(errno.EIO, "a sync of the map failed", self._path)

    def scan(self, start: bytes, stop: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        self._look()
        return self._backward(start, stop) if reverse else self._forward(start, stop)

    def _forward(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        while True:
            self._look()
            table = self._image.live
            first = bisect_left(table.keys, start)
            keys = table.keys[first : min(first + _SCAN_RUN, bisect_left(table.keys, stop))]
            if not keys:
                return
            for key in keys:
                value = table.values.get(key)
                if value is not None:
                    yield key, value
            start = keys[-1] + b"\0"

    def _backward(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        while True:
            self._look()
            table = self._image.live
            end = bisect_left(table.keys, stop)
            keys = table.keys[max(bisect_left(table.keys, start), end - _SCAN_RUN) : end]
            if not keys:
                return
            for key in reversed(keys):
                value = table.values.get(key)
                if value is not None:
                    yield key, value
            stop = keys[0]

    def values(self, start: bytes, count_max: int) -> list[bytes]:
        self._look()
        table = self._image.live
        first = bisect_left(table.keys, start)
        return [table.values[key] for key in table.keys[first : first + count_max]]

    def prefixes(self, start: bytes, stop: bytes, length: int, count_max: int) -> list[bytes]:
        return list(islice(dict.fromkeys(key[:length] for key, _ in self.scan(start, stop)), count_max))

    def compact(self) -> None:
        self._look()

    def close(self) -> None:
        if self._open:
            self._open = False
            if self._power.on:
                self._image.opened_by = None

    def _check_open(self) -> None:
        self._power.check()
        if not self._open:
            raise OSError(errno.EBADF, "the map is closed", self._path)

    def _look(self) -> None:
        self._check_open()
        self._maker._disk._reach(self._path)

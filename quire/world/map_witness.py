"""A witness of RocksDB's files: the length to which each was synced, and its checksum up to there.

Why this is hard: RocksDB treats a log that is damaged or cut in its middle as one that ends there, and opens without a
missing log. Synced data would vanish silently. So two small files in its folder, `quire-synced.a` and `.b`, written in
turn, record after each synced write what must exist. Each is synced before the batch is reported as durable. RocksDB
changes its files in the background, so the witness must allow for every file that it may extend or delete meanwhile.

    batch written -> files measured -> logs synced (RocksDB) -> MANIFEST synced, if it grew -> witness written, synced

- Bytes measured before the sync are on disk after it, whatever is written meanwhile.
- RocksDB flushes and merges in the background. It removes a log when the MANIFEST, which is synced first, no longer
  needs it. So a log that the witness names and the MANIFEST does not need may be missing; any other must exist
  unchanged.
- The witness does not cover a MANIFEST that grew since, or was replaced. It need not: if its end is cut off again,
  the logs and files that the lost edits had made superfluous are missing, which shows.
- Bytes behind the witness were not synced: RocksDB drops a torn tail there, and it is reported here.
- One of the two files may be torn, damaged or missing: the other one is older, and still valid. If both are missing,
  the map looks like one of BookKeeper's, which has no witness: its logs are checked against their own checksums.

    file   magic(8) version(4) logs(4) number(8) sequence(8)  manifest(8) length(8) crc32c(4)
           then for each log: number(8) length(8) crc32c(4)
           then crc32c(4) of all before it, zeros up to a multiple of 512
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from quire.world.damage import Finding
from quire.world.doors import Disk, File, NotSyncedError
from quire.world.rocksdb_files import (
    is_table,
    log_end,
    log_name,
    log_number,
    manifest_name,
    manifest_number,
    manifest_state,
    records,
)

NAMES: Final = ("quire-synced.a", "quire-synced.b")
CURRENT: Final = "CURRENT"
_MAGIC: Final = b"QUIRESYN"
_VERSION: Final = 1
_HEAD: Final = Struct("!8sIIQQQQI")
_LOG: Final = Struct("!QQI")
_SUM: Final = Struct("!I")
_SECTOR: Final = 512
_CHUNK: Final = 1 << 20
_REMEDY: Final = "Restore the folder from a copy; of a bookie of a cluster, its ledgers can be copied from the others"


class Prefix(NamedTuple):
    """First `length` bytes of file `number`, with their crc32c."""

    number: int
    length: int
    crc: int


@dataclass(frozen=True, slots=True)
class Witness:
    """Content of a witness: what must exist.

    `number` counts the witnesses written; `sequence` is RocksDB's number of the last change.
    """

    number: int
    sequence: int
    manifest: Prefix
    logs: tuple[Prefix, ...]

    def encode(self) -> bytes:
        data = _HEAD.pack(_MAGIC, _VERSION, len(self.logs), self.number, self.sequence, *self.manifest)
        data += b"".join([_LOG.pack(*log) for log in self.logs])
        data += _SUM.pack(crc32c(data))
        return data.ljust(-(-len(data) // _SECTOR) * _SECTOR, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> Witness | None:
        """Decode a witness; None if these are not bytes of `encode`."""
        if len(data) < _HEAD.size or not data.startswith(_MAGIC):
            return None
        _, version, count, number, sequence, *manifest = _HEAD.unpack_from(data)
        end = _HEAD.size + count * _LOG.size
        if version != _VERSION or end + _SUM.size > len(data):
            return None
        if _SUM.unpack_from(data, end)[0] != crc32c(data[:end]):
            return None
        logs = tuple(Prefix(*row) for row in _LOG.iter_unpack(data[_HEAD.size : end]))
        return cls(number, sequence, Prefix(*manifest), logs)


@dataclass(slots=True)
class MapCheck:
    """Result of checking the files of a map. `is_new`: there is no map yet."""

    is_new: bool = False
    witness: Witness | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def damage(self) -> Finding | None:
        """Return the first finding that loses data, None if there is none."""
        return next((finding for finding in self.findings if finding.loses), None)

    def lost(self, file: str, what: str) -> None:
        self.findings.append(Finding(file, what, _REMEDY))

    def dropped(self, file: str, data: bytes, offset: int) -> None:
        """Record the data that RocksDB will drop from `offset` on, if there is any."""
        if any(memoryview(data)[offset:]):
            what = f"has an unsynced tail that is not whole, {len(data) - offset} bytes at offset {offset}: dropped"
            self.findings.append(Finding(file, what, loses=False))


def check_map(disk: Disk, path: str) -> MapCheck:
    """Check the files of the map in folder `path` against its witness, changing nothing. Blocking. OSError."""
    found = MapCheck()
    names = disk.names(path) if disk.exists(path) else []
    _read_witness(disk, path, names, found)
    if CURRENT not in names:
        if any(name in NAMES or is_table(name) or _has_bytes(disk, path, name) for name in names):
            found.lost(f"{path}/{CURRENT}", "is missing, and the folder holds the files of a map")
        found.is_new = True
        return found
    data = _read_manifest(disk, path, names, found)
    if data is None:
        return found
    state = manifest_state(edit for _, edit in records(data))
    for number, size in (state.tables or {}).items():
        _check_table(disk, path, names, number, size, found)
    logs = {number for number in map(log_number, names) if number >= 0}
    proved = {log.number: log for log in found.witness.logs} if found.witness else {}
    for number in sorted(logs | set(proved)):
        if number < state.logs_from:
            continue
        if number in logs:
            _check_log(disk, f"{path}/{log_name(number)}", proved.get(number), found)
        elif state.known:
            found.lost(f"{path}/{log_name(number)}", "is missing, and the MANIFEST needs it")
    return found


def _has_bytes(disk: Disk, path: str, name: str) -> bool:
    return log_number(name) >= 0 and bool(disk.read(f"{path}/{name}"))


def _read_witness(disk: Disk, path: str, names: Sequence[str], found: MapCheck) -> None:
    present = [name for name in NAMES if name in names]
    good: dict[str, Witness] = {}
    for name in present:
        witness = Witness.decode(disk.read(f"{path}/{name}"))
        if witness is not None:
            good[name] = witness
    if present and not good:
        found.lost(f"{path}/{present[0]}", "is damaged, and so is its twin: nothing proves the map")
    if good:
        found.witness = max(good.values(), key=lambda witness: witness.number)
        for name in NAMES:
            if name not in good:
                what = "is damaged or was torn" if name in present else "is missing"
                remedy = "Its twin proves the map; it is written again"
                found.findings.append(Finding(f"{path}/{name}", what, remedy, loses=False))


def _read_manifest(disk: Disk, path: str, names: Sequence[str], found: MapCheck) -> bytes | None:
    """Return the MANIFEST that CURRENT names, None if it cannot be used."""
    text = disk.read(f"{path}/{CURRENT}")
    number = manifest_number(text.decode("ascii", "replace").removesuffix("\n"))
    if number < 0 or not text.endswith(b"\n"):
        found.lost(f"{path}/{CURRENT}", f"is damaged: {text[:40]!r} names no MANIFEST")
        return None
    name = manifest_name(number)
    file = f"{path}/{name}"
    witness = found.witness.manifest if found.witness else None
    if name not in names:
        # One bit of the number changed: the existing file is meant.
        others = [other for other in names if manifest_number(other) >= 0]
        if others:
            found.lost(f"{path}/{CURRENT}", f"is damaged: it names {name}, which is not there, and {others[-1]} is")
        else:
            found.lost(file, "is missing, and CURRENT names it")
        return None
    if witness is not None and number < witness.number:
        found.lost(f"{path}/{CURRENT}", f"is damaged: it names {name}, older than MANIFEST-{witness.number:06}")
        return None
    data = disk.read(file)
    if witness is not None and number == witness.number:
        _check_prefix(file, data, witness, found)
    end = log_end(data)
    if end.bad_before >= 0:
        found.lost(file, f"is damaged at offset {end.offset}: a good record stands behind it at {end.bad_before}")
    elif end.offset == 0:
        found.lost(file, "is damaged: it has no good record")
    else:
        found.dropped(file, data, end.offset)
    return data


def _check_prefix(file: str, data: bytes, prefix: Prefix, found: MapCheck) -> bool:
    if len(data) < prefix.length:
        found.lost(file, f"was cut: it has {len(data)} bytes, and {prefix.length} were synced")
    elif crc32c(memoryview(data)[: prefix.length]) != prefix.crc:
        # The records' own checksums show where; the checksum of the whole does not.
        end = min(log_end(data).offset, prefix.length)
        found.lost(
            file, f"is damaged at or behind offset {end}: its first {prefix.length} bytes are not what was synced"
        )
    else:
        return True
    return False


def _check_log(disk: Disk, file: str, proved: Prefix | None, found: MapCheck) -> None:
    data = disk.read(file)
    start = 0
    if proved is not None:
        if not _check_prefix(file, data, proved, found):
            return
        start = proved.length
    if start == len(data):
        return
    end = log_end(data, start)
    if found.witness is None and end.bad_before >= 0:
        # Without a witness it is unknown how far the file was synced. RocksDB would drop everything from here on.
        found.lost(file, f"is damaged at offset {end.offset}: a good record stands behind it at {end.bad_before}")
    else:
        found.dropped(file, data, end.offset)


def _check_table(disk: Disk, path: str, names: Sequence[str], number: int, size: int, found: MapCheck) -> None:
    for suffix in ("sst", "ldb"):
        name = f"{number:06}.{suffix}"
        if name in names:
            file = disk.open(f"{path}/{name}", writable=False)
            try:
                actual = file.size()
            finally:
                file.close()
            if actual != size:
                found.lost(f"{path}/{name}", f"was cut: it has {actual} bytes, and {size} were written")
            return
    found.lost(f"{path}/{number:06}.sst", "is missing, and the MANIFEST needs it")


class _Followed:
    """A file that only grows, with the part read so far."""

    __slots__ = ("crc", "file", "length", "measured")

    def __init__(self, file: File) -> None:
        self.file = file
        self.length = 0
        self.crc = 0
        self.measured = 0

    def read_on(self) -> None:
        while self.length < self.measured:
            data = self.file.pread(min(_CHUNK, self.measured - self.length), self.length)
            if not data:
                return
            self.crc = crc32c(data, self.crc)
            self.length += len(data)


class WitnessWriter:
    """Writer of an open map's witness. Blocking; one caller at a time."""

    def __init__(self, disk: Disk, path: str, last: Witness | None) -> None:
        self._disk = disk
        self._path = path
        self._number = last.number if last is not None else 0
        self._logs: dict[int, _Followed] = {}
        self._manifests: dict[int, _Followed] = {}
        self._current = -1
        self._sequence = 0
        self._files: list[File] = []

    def begin(self) -> None:
        """Create the two files if they are missing or damaged, and write both. Call it after `measure` and a sync."""
        for name in NAMES:
            self._disk.write_atomic(f"{self._path}/{name}", self._read_on().encode())
            self._number += 1
        self._files = [self._disk.open(f"{self._path}/{name}", direct=True) for name in NAMES]

    def measure(self, sequence: int) -> None:
        """Measure the files. The measured bytes are on disk after the next sync of the logs."""
        self._sequence = sequence
        logs: dict[int, None] = {}
        manifests: dict[int, None] = {}
        for name in self._disk.names(self._path):
            number = log_number(name)
            if number >= 0:
                logs[number] = None
            else:
                number = manifest_number(name)
                if number >= 0:
                    manifests[number] = None
        if manifests.keys() != self._manifests.keys() or self._current < 0:
            text = self._disk.read(f"{self._path}/{CURRENT}")
            self._current = manifest_number(text.decode("ascii", "replace").strip())
        self._follow(self._logs, logs, log_name)
        self._follow(self._manifests, manifests, manifest_name)

    def _follow(self, followed: dict[int, _Followed], numbers: dict[int, None], name: Callable[[int], str]) -> None:
        for number in [number for number in followed if number not in numbers]:
            followed.pop(number).file.close()
        for number in numbers:
            each = followed.get(number)
            if each is None:
                try:
                    file = self._disk.open(f"{self._path}/{name(number)}", writable=False)
                except FileNotFoundError:
                    continue  # no longer needed, and removed a moment ago
                each = followed[number] = _Followed(file)
            each.measured = each.file.size()

    def record(self) -> None:
        """Write down the measurements, whose bytes were synced since. Durable on return.

        OSError: the synced data is not proved yet, another try may succeed. NotSyncedError: it never will be.
        """
        witness = self._read_on()
        # A write without room may leave half a witness. The next write uses the same file, and the other one stays
        # whole.
        self._files[witness.number % 2].pwritev_sync([witness.encode()], 0)
        self._number = witness.number

    def _read_on(self) -> Witness:
        manifest = self._manifests.get(self._current)
        if manifest is not None and manifest.measured > manifest.length:
            # RocksDB syncs it, perhaps later: a witness must not be ahead of that.
            try:
                manifest.file.sync()
                self._disk.sync_dir(self._path)
            except OSError as error:
                raise NotSyncedError(*error.args) from error
            manifest.read_on()
        logs: list[Prefix] = []
        for number, each in sorted(self._logs.items()):
            each.read_on()
            logs.append(Prefix(number, each.length, each.crc))
        proved = Prefix(self._current, manifest.length, manifest.crc) if manifest is not None else Prefix(0, 0, 0)
        return Witness(self._number + 1, self._sequence, proved, tuple(logs))

    def close(self) -> None:
        for followed in (*self._logs.values(), *self._manifests.values()):
            followed.file.close()
        for file in self._files:
            file.close()
        self._files.clear()

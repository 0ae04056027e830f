"""Covers quire/world/map_witness.py, rocksdb_files.py and their use in real_key_value.py, on RocksDB's own files.

After damage to any file, either opening is refused with an error that names the file, or every synced row exists, or
reads fail.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from quire.world.damage import DamagedError
from quire.world.doors import Buffer, File, KeyValue, NotSyncedError
from quire.world.map_witness import NAMES, check_map
from quire.world.real_disk import RealDisk
from quire.world.real_key_value import RealKeyValue, RealKeyValueMaker
from quire.world.rocksdb_files import log_end, records

_WRITER = """
import os, random, sys
from quire.world.real_key_value import RealKeyValueMaker
map_ = RealKeyValueMaker().open(sys.argv[1], write_buffer_bytes=int(sys.argv[2]))
rng = random.Random(sys.argv[3])
for number in range(int(sys.argv[4])):
    batch = map_.batch()
    batch.put(b"%04d" % number, rng.randbytes(rng.choice((20, 300, 2000))))
    map_.write(batch, sync=True)
map_.write(map_.batch(), sync=True)
if sys.argv[5] == "unsynced":
    batch = map_.batch()
    batch.put(b"unsynced", b"\x5a" * 5000)
    map_.write(batch, sync=False)
if sys.argv[5] == "closed":
    map_.close()
os._exit(0)
"""
ROWS = 60


def write(folder: Path, how: str, *, buffer: int = 1 << 20, rows: int = ROWS) -> dict[bytes, bytes]:
    """Let another process write a map; return the rows that it synced."""
    subprocess.run([sys.executable, "-c", _WRITER, str(folder), str(buffer), "1", str(rows), how], check=True)
    rng = random.Random("1")
    return {b"%04d" % number: rng.randbytes(rng.choice((20, 300, 2000))) for number in range(rows)}


def opened_rows(folder: Path) -> dict[bytes, bytes]:
    """Return the rows. Raises OSError if the map is refused or a row cannot be read."""
    map_ = RealKeyValueMaker().open(str(folder))
    try:
        return dict(map_.scan(b"", b"\xff"))
    finally:
        map_.close()


def image(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def put_back(folder: Path, files: dict[str, bytes]) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)


def damages(data: bytes, rng: random.Random, flips: int) -> list[tuple[str, bytes | None]]:
    """Return changes of a file, one at a time."""
    size = len(data)
    found: list[tuple[str, bytes | None]] = [("missing", None)]
    for at in sorted(rng.sample(range(size), min(flips, size))):
        bit = 1 << rng.randrange(8)
        found.append((f"flip at {at}", data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]))
    for at in sorted(rng.sample(range(0, size, 512), min(2, (size + 511) // 512))):
        length = min(512, size - at)
        found.append((f"zeroed sector at {at}", data[:at] + bytes(length) + data[at + length :]))
        found.append((f"other sector at {at}", data[:at] + rng.randbytes(length) + data[at + length :]))
    found += [(f"cut to {at}", data[:at]) for at in sorted(rng.sample(range(size), min(8, size)))]
    ends = [end for end, _ in records(data)][:-1]
    found += [(f"cut to the record end {at}", data[:at]) for at in rng.sample(ends, min(3, len(ends)))]
    return found


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Yield a folder in memory where possible: hundreds of openings sync, which does not matter here."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=base) as folder:
        yield Path(folder)


@pytest.mark.parametrize(
    ("how", "buffer"), [("closed", 1 << 20), ("killed", 1 << 20), ("unsynced", 1 << 20), ("killed", 64 << 10)]
)
def test_no_damage_to_a_file_of_a_map_loses_a_synced_row_in_silence(tmp_path, how, buffer):
    folder = tmp_path / "map"
    rows = write(folder, how, buffer=buffer)
    whole = image(folder)
    assert check_map(RealDisk(), str(folder)).findings == []
    rng = random.Random(how)
    refused = refusals = cases = 0
    for name in sorted(whole):
        if name.startswith(("LOG", "OPTIONS", "LOCK", "IDENTITY")):
            whole[name] = whole[name][:600]  # nothing of ours: a few are enough
        for what, data in damages(whole[name], rng, 3):
            if data == whole[name]:
                continue
            files = {key: value for key, value in whole.items() if key != name}
            if data is not None:
                files[name] = data
            put_back(folder, files)
            cases += 1
            try:
                found = opened_rows(folder)
            except DamagedError as error:
                refused += error.finding.file.startswith(str(folder)) and image(folder) == files
                refusals += 1
                continue
            except OSError:
                assert name.endswith((".sst", ".ldb")) or name.startswith("MANIFEST"), (name, what)
                continue  # RocksDB's own checksums
            lost = [key for key, value in rows.items() if found.get(key) != value]
            assert not lost, f"{name} {what}: {len(lost)} synced rows are gone or wrong, the first is {lost[0]!r}"
    assert refusals > 15, f"{cases} cases"
    assert refused == refusals, "a refusal names the file, and has changed nothing"


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed") / "map"
    write(folder, "killed")
    return folder


@pytest.fixture
def killed(killed_once: Path, tmp_path: Path) -> Path:
    return shutil.copytree(killed_once, tmp_path / "map")


def refusal(folder: Path) -> str:
    with pytest.raises(DamagedError) as caught:
        RealKeyValueMaker().open(str(folder))
    return str(caught.value)


def the_log(folder: Path) -> Path:
    return next(path for path in folder.glob("*.log") if path.stat().st_size)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.5, 0.999])
def test_a_log_cut_below_what_was_synced_is_refused_by_name(killed, part):
    log = the_log(killed)
    size = log.stat().st_size
    os.truncate(log, int(size * part))
    assert f"{log} was cut" in refusal(killed)


def test_a_log_cut_where_a_record_ends_is_refused(killed):
    log = the_log(killed)
    ends = [end for end, _ in records(log.read_bytes())]
    os.truncate(log, ends[len(ends) // 2])
    assert f"{log} was cut" in refusal(killed)


def test_a_missing_log_is_refused_by_name(killed):
    log = the_log(killed)
    log.unlink()
    assert f"{log} is missing" in refusal(killed)


def test_a_manifest_cut_where_a_record_ends_is_refused(tmp_path):
    write(tmp_path / "map", "closed")
    (manifest,) = (tmp_path / "map").glob("MANIFEST-*")
    ends = [end for end, _ in records(manifest.read_bytes())]
    os.truncate(manifest, ends[-2])
    assert f"{manifest} was cut" in refusal(tmp_path / "map")


def test_a_map_whose_current_is_gone_is_not_begun_anew(killed):
    (killed / "CURRENT").unlink()
    assert "CURRENT is missing" in refusal(killed)


def test_of_two_damaged_witnesses_nothing_is_believed(killed):
    for name in NAMES:
        (killed / name).write_bytes(b"x" * 512)
    assert "its twin" in refusal(killed)


@pytest.mark.parametrize("name", NAMES)
def test_one_witness_is_enough_and_the_other_is_made_again(killed, name):
    (killed / name).unlink()
    map_ = RealKeyValueMaker().open(str(killed))
    assert [Path(finding.file).name for finding in map_.noticed] == [name]
    map_.close()
    assert check_map(RealDisk(), str(killed)).findings == []


def test_a_torn_tail_behind_the_witness_is_dropped_and_said(tmp_path):
    folder = tmp_path / "map"
    rows = write(folder, "unsynced")
    log = the_log(folder)
    os.truncate(log, log.stat().st_size - 100)
    map_ = RealKeyValueMaker().open(str(folder))
    assert [finding.file for finding in map_.noticed] == [str(log)]
    assert "unsynced tail" in map_.noticed[0].what
    assert dict(map_.scan(b"", b"\xff")) == rows
    map_.close()


@pytest.mark.parametrize("with_holes", [False, True])
def test_whatever_a_power_cut_left_behind_the_witness_refuses_nothing(tmp_path, with_holes):
    folder = tmp_path / "map"
    rows = write(folder, "unsynced")
    log = the_log(folder)
    data = bytearray(log.read_bytes())
    at = len(data) - 4096
    data[at : at + 512] = bytes(512) if with_holes else b"\xa5" * 512
    log.write_bytes(data)
    assert opened_rows(folder) == rows


def test_a_map_without_a_witness_is_opened_and_has_one_then(killed):
    """BookKeeper and older versions leave such a map."""
    for name in NAMES:
        (killed / name).unlink()
    assert len(opened_rows(killed)) == ROWS
    assert check_map(RealDisk(), str(killed)).witness is not None


def test_a_damaged_log_of_a_map_without_a_witness_is_refused(killed):
    for name in NAMES:
        (killed / name).unlink()
    log = the_log(killed)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    assert f"{log} is damaged" in refusal(killed)


@pytest.mark.parametrize("harm", [lambda data: data[:-9], lambda data: data + bytes(40)])
def test_a_log_torn_at_its_end_is_no_damage(killed, harm: Callable[[bytes], bytes]):
    data = harm(the_log(killed).read_bytes())
    assert log_end(data).bad_before < 0


_KILLED = """
import os, random, sys
from quire.world.real_key_value import RealKeyValueMaker
map_ = RealKeyValueMaker().open(sys.argv[1], write_buffer_bytes=64 << 10)
rng = random.Random(sys.argv[2])
number = int.from_bytes(map_.get(b"n") or b"", "big")
while True:
    batch = map_.batch()
    batch.put(b"u%d" % rng.randrange(300), os.urandom(rng.randrange(2000)))
    map_.write(batch, sync=False)
    number += 1
    batch = map_.batch()
    batch.put(b"n", number.to_bytes(8, "big"))
    batch.put(b"k%d" % (number % 500), os.urandom(rng.choice((10, 400, 3000))))
    map_.write(batch, sync=True)
    os.write(1, number.to_bytes(8, "big"))
"""


@pytest.mark.parametrize("kills", [4, pytest.param(250, marks=pytest.mark.full)])
def test_a_map_killed_at_any_moment_is_never_refused(tmp_path, kills):
    """RocksDB flushes and merges in the background meanwhile."""
    folder = str(tmp_path / "map")
    rng = random.Random(7)
    last = 0
    for kill in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-c", _KILLED, folder, str(kill)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        if rng.random() < 0.75:
            process.stdout.read(8 * rng.randrange(1, 60))
        else:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0.05, 0.3))  # in the middle of opening
        process.send_signal(signal.SIGKILL)
        answered, errors = process.communicate()
        assert not errors
        if len(answered) >= 8:
            last = int.from_bytes(answered[len(answered) // 8 * 8 - 8 : len(answered) // 8 * 8], "big")
    assert check_map(RealDisk(), folder).damage is None
    map_ = RealKeyValueMaker().open(folder)
    assert int.from_bytes(map_.get(b"n") or b"", "big") >= last
    map_.close()


class FailingFile:
    """A file of which the next writes or syncs fail; a write leaves half of itself."""

    def __init__(self, file: File, error: OSError) -> None:
        self.file = file
        self.errors = [error]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def pwritev_sync(self, parts: Sequence[Buffer], offset: int) -> None:
        if self.errors:
            half = bytes(parts[0])[:40].ljust(512, b"\0")
            self.file.pwritev([half], offset)
            raise self.errors.pop()
        self.file.pwritev_sync(parts, offset)


def put(map_: KeyValue, key: bytes) -> None:
    batch = map_.batch()
    batch.put(key, b"value")
    map_.write(batch, sync=True)


def test_a_witness_that_is_not_synced_ends_the_map(tmp_path: Path) -> None:
    map_ = RealKeyValueMaker().open(str(tmp_path))
    assert isinstance(map_, RealKeyValue)
    assert map_._witness is not None
    files = map_._witness._files
    files[:] = [FailingFile(file, NotSyncedError(errno.EIO, "no sync")) for file in files]
    for key in (b"failed", b"later"):
        with pytest.raises(NotSyncedError, match="no sync"):
            put(map_, key)
    map_.close()
    assert b"later" not in opened_rows(tmp_path)


def test_a_witness_that_finds_no_room_twice_leaves_the_other_one_whole(tmp_path: Path) -> None:
    map_ = RealKeyValueMaker().open(str(tmp_path))
    assert isinstance(map_, RealKeyValue)
    put(map_, b"before")
    assert map_._witness is not None
    files = [FailingFile(file, OSError(errno.ENOSPC, "no room")) for file in map_._witness._files]
    map_._witness._files[:] = files
    for _ in range(2):
        with pytest.raises(OSError, match="no room"):
            put(map_, b"key")
        check = check_map(RealDisk(), str(tmp_path))
        assert check.damage is None
        assert check.witness is not None
        for file in files:
            file.errors[:] = [OSError(errno.ENOSPC, "no room")]
    for file in files:
        file.errors.clear()
    put(map_, b"key")
    map_.close()
    assert opened_rows(tmp_path).keys() == {b"before", b"key"}

"""Special properties of the real doors.

Those shared with the simulated ones are in tests/conformance/test_doors_*.py.
"""

from __future__ import annotations

import ast
import errno
import fcntl
import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio

import quire
from quire.world.doors import Buffer, Lane, NotSyncedError
from quire.world.real import real_world
from quire.world.real_disk import _DIRECT_BYTES
from quire.world.real_key_value import RealKeyValue
from quire.world.real_network import RealListener, RealStream
from tests.support.refusals import refuses

pytestmark = pytest.mark.real_clock

if TYPE_CHECKING:
    import socket

ROOT = Path(quire.__file__).parents[1]
PACKAGES = ("broker", "bookie", "managed_ledger", "cursors", "autorecovery", "quire", "simulation")


def python(code: str, *args: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip


def test_only_the_real_doors_import_rocksdict():
    importers = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text()
            if "rocksdict" not in text:
                continue
            for node in ast.walk(ast.parse(text)):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                if any(name.split(".")[0] == "rocksdict" for name in names):
                    importers.append(str(path.relative_to(ROOT)))
    # Shell and doctor read a stopped bookie's indexes without changing a byte, which no door offers.
    assert importers == ["quire/world/real_key_value.py", "quire/world/real_look.py"]


def test_rocksdict_is_not_imported_before_a_map_is_opened():
    assert (
        python("import quire.world.real, sys; quire.world.real.real_world(); print('rocksdict' in sys.modules)")
        == "False\n"
    )


def test_a_seed_fixes_the_rng_and_the_clock_tells_dates():
    one, other = real_world(7), real_world(7)
    assert [one.rng.random() for _ in range(3)] == [other.rng.random() for _ in range(3)]
    assert one.clock.wall_ms() > 1_700_000_000_000


def test_short_writes_are_continued(tmp_path, monkeypatch):
    file = real_world().disk.open(str(tmp_path / "f"), create=True)
    pwrite, pwritev = os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, bytes(data)[:3], offset))
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, offset: pwrite(fd, b"".join(parts)[:3], offset))
    file.pwrite(b"0123456789", 0)
    assert file.pwritev([b"ab", b"", memoryview(b"cdefg"), b"h", b"ij"], 10) == 10
    monkeypatch.setattr(os, "pwritev", pwritev)
    assert file.pread(99, 0) == b"0123456789abcdefghij"


@pytest.mark.parametrize("call", ["pwrite", "pwritev", "pwritev_sync"])
def test_a_direct_file_holds_all_parts_end_to_end_whatever_their_sizes(tmp_path, call):
    path = tmp_path / "f"
    parts: list[Buffer] = [bytes([65 + index % 26]) * (1 + index * 7919 % 9000) for index in range(1500)]
    parts.append(memoryview(bytearray(os.urandom(_DIRECT_BYTES + 5))))
    parts.append(bytes(-sum(map(len, parts)) % 512))
    joined = b"".join(parts)
    file = real_world().disk.open(str(path), create=True, direct=True)
    if call == "pwrite":
        file.pwrite(joined, 512)
    else:
        getattr(file, call)(parts, 512)
    file.pwritev_sync([b"x" * 500, b"y" * 12], 0)
    file.close()
    assert path.read_bytes() == b"x" * 500 + b"y" * 12 + joined


def test_a_direct_file_is_written_past_the_page_cache_in_one_call(tmp_path, monkeypatch):
    path = str(tmp_path / "f")
    expected = (os.O_DIRECT, [512], 512, os.RWF_DSYNC)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT))
    except OSError:  # not every file system of a temporary folder knows direct files
        expected = (0, [100, 412], 512, os.RWF_DSYNC)
    calls = []
    pwritev = os.pwritev

    def watch(fd, parts, offset, flags=0):
        calls.append((fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT, [len(part) for part in parts], offset, flags))
        return pwritev(fd, parts, offset, flags)

    monkeypatch.setattr(os, "pwritev", watch)
    file = real_world().disk.open(path, create=True, direct=True)
    file.pwritev_sync([b"a" * 100, b"b" * 412], 512)
    assert calls == [expected]


def test_a_file_system_that_refuses_direct_files_gets_others(tmp_path, monkeypatch):
    opened = os.open

    def refuse(path, flags, mode=0o777):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "not here")
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    file = real_world().disk.open(str(tmp_path / "f"), create=True, direct=True)
    file.pwritev_sync([b"a" * 512], 0)
    assert (tmp_path / "f").read_bytes() == b"a" * 512


@pytest.mark.parametrize("call", ["pwrite", "pwritev", "pwritev_sync"])
def test_a_disk_that_refuses_direct_writes_is_written_through_the_page_cache(tmp_path, monkeypatch, call):
    pwritev = os.pwritev

    def refuse(fd, parts, offset, flags=0):
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "larger sectors")
        return pwritev(fd, parts, offset, flags)

    monkeypatch.setattr(os, "pwritev", refuse)
    file = real_world().disk.open(str(tmp_path / "f"), create=True, direct=True)
    for place in (0, 512):
        data = b"a" * 512
        getattr(file, call)(data if call == "pwrite" else [data], place)
    assert (tmp_path / "f").read_bytes() == b"a" * 1024


def test_a_direct_write_that_takes_less_is_continued(tmp_path, monkeypatch):
    pwritev = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, offset, flags=0: pwritev(fd, [parts[0][:1024]], offset, flags))
    file = real_world().disk.open(str(tmp_path / "f"), create=True, direct=True)
    data = os.urandom(5 * 512)
    assert file.pwritev([data[:700], data[700:]], 0) == len(data)
    file.close()
    assert (tmp_path / "f").read_bytes() == data


@pytest.mark.parametrize(("code", "kind"), [(errno.ENOSPC, OSError), (errno.EIO, NotSyncedError)])
def test_a_direct_write_that_fails_for_want_of_room_says_so_and_any_other_leaves_durability_unknown(
    tmp_path, monkeypatch, code, kind
):
    def refuse(fd, parts, offset, flags=0):
        raise OSError(code, "no")

    file = real_world().disk.open(str(tmp_path / "f"), create=True, direct=True)
    monkeypatch.setattr(os, "pwritev", refuse)
    with pytest.raises(OSError, match="no") as failure:
        file.pwritev_sync([bytes(512)], 0)
    assert type(failure.value) is kind


def test_short_reads_are_continued(tmp_path, monkeypatch):
    file = real_world().disk.open(str(tmp_path / "f"), create=True)
    file.pwrite(b"0123456789", 0)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: pread(fd, min(size, 3), offset))
    assert file.pread(8, 1) == b"12345678"
    assert file.pread(99, 0) == b"0123456789"


def test_a_file_system_that_cannot_reserve_gets_zeros(tmp_path, monkeypatch):
    def refuse(fd, offset, size):
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    file = real_world().disk.open(str(tmp_path / "f"), create=True)
    file.pwrite(b"abc", 0)
    file.preallocate(1, (2 << 20) + 5)
    assert file.size() == (2 << 20) + 6
    assert file.pread(9, 0) == b"abc" + bytes(6)


def test_a_failed_atomic_write_leaves_the_old_value_and_no_trace(tmp_path, monkeypatch):
    disk = real_world().disk
    path = str(tmp_path / "f")
    disk.write_atomic(path, b"old")

    def refuse(fd):
        raise OSError(errno.EIO, "bad disk")

    monkeypatch.setattr(os, "fsync", refuse)
    refuses(OSError, lambda: disk.write_atomic(path, b"new"), "bad disk")
    assert disk.read(path) == b"old"
    assert disk.names(str(tmp_path)) == ["f"]


def test_a_lock_is_gone_with_its_process(tmp_path):
    path = str(tmp_path / "LOCK")
    code = "import sys, os; from quire.world.real import real_world; real_world().disk.lock(sys.argv[1]); os._exit(0)"
    python(code, path)
    real_world().disk.lock(path).release()


def test_what_is_stored_on_a_board_outlives_a_killed_process(tmp_path):
    path = tmp_path / "board"
    path.write_bytes(bytes(1024))
    code = """
import os, signal, sys
from quire.world.real import real_world
real_world().disk.board(sys.argv[1]).store(512, b"stored")
os._exit(0)
"""
    python(code, str(path))
    assert path.read_bytes()[512:518] == b"stored"


def test_a_synced_batch_outlives_a_killed_process(tmp_path):
    code = """
import os, sys
from quire.world.real import real_world
map_ = real_world().key_value.open(sys.argv[1])
for key, sync in ((b"a", False), (b"b", True)):
    batch = map_.batch()
    batch.put(key, b"v")
    map_.write(batch, sync=sync)
os._exit(0)
"""
    python(code, str(tmp_path / "map"))
    map_ = real_world().key_value.open(str(tmp_path / "map"))
    assert list(map_.scan(b"", b"z")) == [(b"a", b"v"), (b"b", b"v")]
    map_.close()


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_over_a_damaged_block_fails_and_does_not_end_early(tmp_path, reverse):
    maker, folder = real_world().key_value, tmp_path / "map"
    map_ = maker.open(str(folder))
    batch = map_.batch()
    for number in range(5000):
        batch.put(number.to_bytes(8, "big"), number.to_bytes(8, "little") * 4)
    map_.write(batch, sync=True)
    assert map_.values((9).to_bytes(8, "big"), 2) == [number.to_bytes(8, "little") * 4 for number in (9, 10)]
    map_.compact()
    map_.close()
    table = max(folder.glob("*.sst"), key=lambda path: path.stat().st_size)
    data = bytearray(table.read_bytes())
    data[len(data) // 3] ^= 1
    table.write_bytes(data)
    map_ = maker.open(str(folder))
    with pytest.raises(OSError, match="Corruption") as scanned:
        list(map_.scan(b"", b"\xff", reverse=reverse))
    assert len(map_.values(b"", 5000)) < 5000
    with pytest.raises(OSError, match="Corruption") as counted:
        map_.prefixes(b"", b"\xff", 7, 5000)
    map_.close()
    maker.open(str(folder)).close()  # also while the errors are kept, whose frames had iterators
    assert scanned.value is not counted.value


def test_the_different_prefixes_of_the_keys_of_a_range_are_found(tmp_path):
    map_ = real_world().key_value.open(str(tmp_path))
    batch = map_.batch()
    for key in (b"a", b"aa", b"aa1", b"ab", b"ab1", b"ab2", b"b\xff", b"b\xff2", b"c1", b"\xff\xff", b"\xff\xff1"):
        batch.put(key, b"v")
    map_.write(batch, sync=True)
    end = b"\xff" * 4
    assert map_.prefixes(b"", end, 2, 9) == [b"a", b"aa", b"ab", b"b\xff", b"c1", b"\xff\xff"]
    assert map_.prefixes(b"ab2", end, 2, 2) == [b"ab", b"b\xff"], "the first two from a key on"
    assert map_.prefixes(b"aa", b"b\xff", 2, 9) == [b"aa", b"ab"], "below the end of the range"
    assert map_.prefixes(b"b", b"b", 2, 9) == map_.prefixes(b"d", b"e", 2, 9) == map_.prefixes(b"", end, 2, 0) == []
    map_.close()


def test_reads_do_not_go_past_the_end_of_what_is_asked_for(tmp_path, monkeypatch):
    map_ = real_world().key_value.open(str(tmp_path))
    assert isinstance(map_, RealKeyValue)
    batch = map_.batch()
    for key in (b"a1", b"a2", b"c1"):
        batch.put(key, b"v")
    for number in range(1000):
        key = b"b%d" % number
        batch.put(key, b"v")
        batch.delete(key)
    map_.write(batch, sync=True)
    make_bounds = map_._make_bounds

    def impatient() -> Any:
        bounds = make_bounds()
        bounds.set_max_skippable_internal_keys(100)
        return bounds

    monkeypatch.setattr(map_, "_make_bounds", impatient)
    refuses(OSError, lambda: list(map_.scan(b"a1", b"c")), "incomplete")
    assert [key for key, _ in map_.scan(b"a1", b"b")] == [b"a1", b"a2"]
    assert map_.prefixes(b"a2", b"b", 2, 9) == [b"a2"]
    assert list(map_.scan(b"b", b"a")) == []
    assert map_.prefixes(b"b", b"a", 2, 9) == []
    map_.close()


def test_maps_are_written_as_the_java_bookie_reads_them(tmp_path):
    map_ = real_world().key_value.open(str(tmp_path))
    batch = map_.batch()
    batch.put(b"k", b"v")
    map_.write(batch, sync=True)
    map_.close()
    options = max(tmp_path.glob("OPTIONS-*")).read_text()
    for line in ("comparator=leveldb.BytewiseComparator", "format_version=5", "filter_policy=bloomfilter"):
        assert line in options
    assert "compression_per_level=kNoCompression:kLZ4Compression" in options
    assert options.count("[CFOptions ") == 1


async def test_a_listener_out_of_descriptors_says_so_and_goes_on_when_it_is_asked_again():
    listener = await real_world().network.listen("127.0.0.1", 0)
    assert isinstance(listener, RealListener)
    failures = [errno.EMFILE, errno.ECONNABORTED, errno.ENFILE]
    sock = listener._socket

    class Exhausted:
        def accept(self):
            if failures:
                raise OSError(failures.pop(0), "accept")
            return sock.accept()

        def fileno(self):
            return sock.fileno()

        def close(self):
            sock.close()

    listener._socket = cast("socket.socket", Exhausted())
    near = await real_world().network.connect(*listener.address)
    for expected in (errno.EMFILE, errno.ENFILE):
        with pytest.raises(OSError, match="accept") as told:
            await listener.accept()
        assert told.value.errno == expected
    far = await listener.accept()
    assert failures == []
    for each in (near, far, listener):
        each.close()


def test_small_parts_leave_in_one_call_and_large_ones_uncopied():
    class Socket:
        def __init__(self):
            self.calls = []

        def setblocking(self, flag): ...

        def setsockopt(self, *option): ...

        def send(self, data):
            self.calls.append(("send", len(data)))
            return len(data)

        def sendmsg(self, parts):
            self.calls.append(("sendmsg", len(parts)))
            return sum(map(len, parts))

    sock = Socket()
    stream = RealStream(cast("socket.socket", sock), ("127.0.0.1", 1))
    assert stream.send_nowait([b"x" * 100] * 900) == 90_000
    assert stream.send_nowait([b"x" * 100_000] * 1500) == 150_000_000
    assert stream.send_nowait([b"x" * 2000] * 1024) == 2_048_000
    assert sock.calls[:3] == [("send", 90_000), ("sendmsg", 1024), ("sendmsg", 476)]
    assert all(kind == "send" and size <= 528_000 for kind, size in sock.calls[3:])
    assert stream.send_nowait([]) == 0


async def test_an_idle_lane_keeps_nothing_alive():
    class Item: ...

    reported = trio.Event()
    lane: Lane[Item] = real_world().offload.lane("lane", lambda items: items, lambda *report: reported.set())
    item = Item()
    gone = weakref.ref(item)
    lane.put(item)
    del item
    await reported.wait()
    for _ in range(1000):
        gc.collect()
        if gone() is None:
            break
        await trio.sleep(0.001)
    assert gone() is None
    await lane.aclose()


async def test_a_lane_whose_loop_has_ended_ends_too():
    ran: list[object] = []

    async def main():
        return real_world().offload.lane("lane", ran.append, lambda *report: None)

    lane = await main()
    lane.put(1)
    # Its thread finds no loop to report to, and must not complain (pytest turns a thread's exception into a failure).
    import threading

    for thread in threading.enumerate():
        if thread.name == "lane":
            thread.join(10)
    assert ran == [[1]]


def test_a_map_that_cannot_be_closed_cleanly_says_so_as_a_disk_does(tmp_path):
    map_ = real_world().key_value.open(str(tmp_path))
    assert isinstance(map_, RealKeyValue)
    opened = map_._database

    class Database:
        def latest_sequence_number(self):
            return 0

        def close(self):
            opened.close()
            raise Exception("IO error: Writer has previous error.")

    map_._database = Database()
    with pytest.raises(OSError, match="previous error") as caught:
        map_.close()
    assert caught.value.errno == errno.EIO


class PatchedDatabase:
    """RocksDB of which one call fails."""

    def __init__(self, database, call, text):
        self._database = database
        self._call = call
        self._text = text

    def __getattr__(self, name):
        if name == self._call:
            return self._fail
        return getattr(self._database, name)

    def _fail(self, *_):
        self._call = ""
        raise Exception(self._text)


def put(map_, key):
    batch = map_.batch()
    batch.put(key, b"value")
    map_.write(batch, sync=True)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("flush_wal", "IO error: While fdatasync: Input/output error"),
        ("flush_wal", "IO error: No space left on device: While fdatasync"),
        ("write", "IO error: While appending to file: Input/output error"),
    ],
)
def test_a_failed_sync_of_a_map_is_final_and_the_next_opening_has_what_was_synced(tmp_path, call, text):
    map_ = real_world().key_value.open(str(tmp_path))
    assert isinstance(map_, RealKeyValue)
    put(map_, b"before")
    map_._database = PatchedDatabase(map_._database, call, text)
    for key in (b"failed", b"later"):
        with pytest.raises(NotSyncedError, match=text[10:]):
            put(map_, key)
    refuses(NotSyncedError, lambda: map_.write(map_.batch(), sync=False))
    map_.close()
    map_ = real_world().key_value.open(str(tmp_path))
    assert map_.get(b"before") == b"value"
    assert map_.get(b"later") is None
    map_.close()


def test_a_map_that_found_no_room_for_a_batch_takes_it_later(tmp_path):
    map_ = real_world().key_value.open(str(tmp_path))
    assert isinstance(map_, RealKeyValue)
    map_._database = PatchedDatabase(map_._database, "write", "IO error: No space left on device: While appending")
    with pytest.raises(OSError, match="No space") as caught:
        put(map_, b"key")
    assert not isinstance(caught.value, NotSyncedError)
    put(map_, b"key")
    assert map_.get(b"key") == b"value"
    map_.close()

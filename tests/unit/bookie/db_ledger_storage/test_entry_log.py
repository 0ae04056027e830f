from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie.db_ledger_storage import log_contents
from bookie.db_ledger_storage.entry_log import EntryLogs
from bookie.db_ledger_storage.entry_log_format import HEADER_LENGTH, Header, decode_header, encode_header, pack_location
from bookie.db_ledger_storage.log_writing.page_window import PageWindow
from bookie.db_ledger_storage.open_logs import OPEN_FILES_MAX
from bookie.errors import StorageDamagedError
from quire.wire.bookkeeper.run import Run
from simulation.machines.host import Host
from simulation.machines.world import Universe
from tests.support.refusals import refuses

FOLDER = "/ledgers/current"


@pytest.fixture
def host() -> Host:
    host = Universe(1).host("bookie")
    host.world().disk.make_dirs(FOLDER)
    host.end()
    return host


def opened(host: Host, **options: Any) -> EntryLogs:
    return watched(host, **options)[1]


def watched(host: Host, **options: Any) -> tuple[WatchedDisk, EntryLogs]:
    disk = WatchedDisk(host.world().disk)
    logs = EntryLogs(disk, FOLDER, **options)
    logs.open()
    return disk, logs


@pytest.fixture
def closed(host: Host, run_of: Callable[..., Run]) -> Host:
    """A host with a closed log that has three entries of ledger 7 and one of ledger 9."""
    logs = opened(host)
    logs.append([run_of(7, range(3)), run_of(9, [5])])
    logs.close()
    host.end()
    return host


def ledgers(host: Host) -> dict[int, int]:
    """Return the bytes by ledger in the first log, as the next process finds them."""
    found = dict(opened(host).contents.metadata(0).ledgers)
    host.end()
    return found


def test_runs_lie_behind_the_header_one_after_the_other(host, run_of, records_of):
    logs = opened(host)
    one, two = run_of(7, range(3)), run_of(9, [5])
    assert logs.append([one, two]) == [(one, pack_location(0, 1024)), (two, pack_location(0, 1024 + 3 * 44))]
    three = run_of(7, [3])
    assert logs.append([three]) == [(three, pack_location(0, 1024 + 4 * 44))]
    data = host.disk.read(f"{FOLDER}/0.log")
    assert data[:HEADER_LENGTH] == encode_header(Header())
    assert data[HEADER_LENGTH:] == records_of(7, range(3)) + records_of(9, [5]) + records_of(7, [3])
    assert host.disk.read(f"{FOLDER}/lastId") == b"0\n"


def test_what_was_appended_survives_a_crash_with_name_and_all(host, run_of, records_of):
    logs = opened(host)
    logs.append([run_of(7, range(100), 1000)])
    host.cut_power()
    assert host.disk.read(f"{FOLDER}/0.log")[1024:] == records_of(7, range(100), 1000)


def test_no_file_is_made_before_there_is_something_to_write(host):
    logs = opened(host)
    logs.append([])
    logs.close()
    assert host.disk.paths() == []


def test_closing_seals_the_log(closed):
    assert decode_header(closed.disk.read(f"{FOLDER}/0.log")) == Header(map_offset=1024 + 4 * 44, ledgers=2)
    assert ledgers(closed) == {7: 132, 9: 44}


def test_a_full_log_is_sealed_and_the_next_one_begun(host, run_of):
    logs = opened(host, size_max=1024 + 5 * 44)
    placed = logs.append([run_of(7, [each]) for each in range(12)])
    assert [location >> 32 for _, location in placed] == [0] * 5 + [1] * 5 + [2] * 2
    assert logs.inactive_ids() == [0, 1]
    assert logs.active_id == 2
    for log_id in (0, 1):
        assert dict(logs.contents.metadata(log_id).ledgers) == {7: 5 * 44}
        assert decode_header(host.disk.read(f"{FOLDER}/{log_id}.log")).has_map


def test_a_run_longer_than_a_log_gets_one_of_its_own(host, run_of):
    logs = opened(host, size_max=2000)
    placed = logs.append([run_of(7, [0]), run_of(7, [1], 5000), run_of(7, [2])])
    assert [location >> 32 for _, location in placed] == [0, 1, 2]


def test_each_start_takes_a_new_id_and_never_an_old_file(host, run_of):
    for start in range(3):
        logs = opened(host)
        before = {path: host.disk.read(path) for path in host.disk.paths() if path.endswith(".log")}
        assert logs.append([run_of(7, [start])])[0][1] >> 32 == start
        assert {path: host.disk.read(path) for path in before} == before
        host.cut_power()


def test_the_next_id_is_above_last_id_even_if_its_file_is_gone(host, run_of):
    disk = host.world().disk
    disk.write_atomic(f"{FOLDER}/lastId", b"1f\n")
    host.end()
    assert opened(host).append([run_of(7, [0])])[0][1] >> 32 == 0x20
    assert f"{FOLDER}/20.log" in host.disk.paths()


def test_without_last_id_the_files_tell_the_next_id(host, run_of):
    disk = host.world().disk
    disk.write_atomic(f"{FOLDER}/a.log", encode_header(Header()))
    disk.write_atomic(f"{FOLDER}/lastId", b"garbage\n")
    host.end()
    assert opened(host).append([run_of(7, [0])])[0][1] >> 32 == 11


@pytest.mark.parametrize("syncs_before", [0, 1])
def test_after_a_failed_sync_the_log_is_left_alone_and_a_new_one_taken(host, run_of, records_of, syncs_before):
    logs = opened(host)
    kept = [run_of(7, [each]) for each in range(syncs_before)]
    if kept:
        logs.append(kept)
        host.disk.fail_syncs(1)
    else:
        host.disk.fail_syncs(1)  # the sync of lastId fails already
    refuses(OSError, lambda: logs.append([run_of(7, [5])]), "Input/output")
    assert logs.active_id == -1
    placed = logs.append([run_of(7, [5])])
    log_id = placed[0][1] >> 32
    assert log_id == syncs_before
    if kept:
        assert host.disk.read(f"{FOLDER}/0.log")[1024:] == records_of(7, [0])
        assert dict(logs.contents.metadata(0).ledgers) == {7: 44}
    host.cut_power()
    assert host.disk.read(f"{FOLDER}/{log_id:x}.log")[1024:] == records_of(7, [5])


def test_a_full_disk_leaves_nothing_of_the_failed_flush_and_no_pile_of_files(host, run_of, records_of):
    logs = opened(host)
    logs.append([run_of(7, [0])])
    for _ in range(5):
        host.disk.limit(3000)
        with pytest.raises(OSError, match="No space"):
            logs.append([run_of(7, [each], 500) for each in range(1, 20)])
    assert host.disk.paths() == [f"{FOLDER}/0.log", f"{FOLDER}/lastId"]
    assert host.disk.read(f"{FOLDER}/0.log")[1024:] == records_of(7, [0])
    host.disk.limit(None)
    placed = logs.append([run_of(7, [1])])
    assert placed[0][1] & 0xFFFFFFFF == 1024


def test_a_log_without_map_is_scanned_not_taken_for_empty(host, run_of):
    logs = opened(host)
    logs.append([run_of(7, range(3)), run_of(9, [5])])
    host.cut_power()
    assert dict(opened(host).contents.metadata(0).ledgers) == {7: 132, 9: 44}


@pytest.mark.parametrize("offset", [8, 11, 12, 15, 16, 19])
@pytest.mark.parametrize("bit", [0, 3, 7])
def test_a_bit_flipped_in_the_fields_of_the_map_leads_to_a_scan(closed, offset, bit):
    closed.disk.flip(f"{FOLDER}/0.log", offset, bit)
    assert ledgers(closed) == {7: 132, 9: 44}


def test_a_torn_map_leads_to_a_scan(closed):
    whole = len(closed.disk.read(f"{FOLDER}/0.log"))
    for end in range(whole - 1, 1024 + 4 * 44 - 1, -1):
        closed.disk.cut(f"{FOLDER}/0.log", end)
        assert ledgers(closed) == {7: 132, 9: 44}, end


def test_a_sealed_log_proves_its_ledgers_and_a_flipped_bit_of_the_map_or_the_checksum_does_not(host, run_of):
    logs = opened(host)
    logs.append([run_of(7, range(3)), run_of(9, [5])])
    assert not logs.contents.metadata(0).proven, "it is still written"
    logs.close()
    host.end()
    found = opened(host).contents.metadata(0)
    assert (found.proven, dict(found.ledgers)) == (True, {7: 132, 9: 44})
    host.end()
    whole = len(host.disk.read(f"{FOLDER}/0.log"))
    for offset in (1008, 1019, 1024 + 4 * 44 + 25, whole - 1):
        host.disk.flip(f"{FOLDER}/0.log", offset, 1)
        assert not opened(host).contents.metadata(0).proven, offset
        host.end()
        host.disk.flip(f"{FOLDER}/0.log", offset, 1)


def test_what_logs_without_a_map_hold_is_remembered_up_to_a_bound(host, run_of, monkeypatch):
    monkeypatch.setattr(log_contents, "_KEPT_LEDGERS_MAX", 3)
    for _ in range(5):
        logs = opened(host)
        logs.append([run_of(7, [0]), run_of(9, [5])])
        host.cut_power()
    logs = opened(host)
    for log_id in logs.inactive_ids():
        assert dict(logs.contents.metadata(log_id).ledgers) == {7: 44, 9: 44}
    assert list(logs.contents._kept) == [4]


def test_bookkeeper_2908_a_missing_log_is_damage_not_absence(host):
    logs = opened(host)
    with pytest.raises(StorageDamagedError, match=r"3\.log is missing"), logs.readers.reading(3):
        pass


def test_a_log_deleted_under_a_reader_stays_readable_until_it_is_done(host, run_of, records_of):
    logs = opened(host, size_max=1100)
    logs.append([run_of(7, [0]), run_of(7, [1])])
    with logs.readers.reading(0) as file:
        assert logs.delete(0) == len(host.disk.read(f"{FOLDER}/1.log")) + 24 + 16
        assert file.pread(44, 1024) == records_of(7, [0])
    refuses(OSError, lambda: file.pread(44, 1024), "closed")
    assert logs.inactive_ids() == []
    with pytest.raises(StorageDamagedError), logs.readers.reading(0):
        pass


def test_files_pushed_out_of_the_table_are_opened_again(host, run_of, records_of):
    logs = opened(host, size_max=1100)
    logs.append([run_of(7, [each]) for each in range(100)])
    for _ in range(2):
        for log_id in range(100):
            with logs.readers.reading(log_id) as file:
                assert file.pread(44, 1024) == records_of(7, [log_id])


class WatchedDisk:
    """A disk that counts its open files, and records syncs and released pages, by file and in order."""

    def __init__(self, disk: Any) -> None:
        self._disk = disk
        self.open_files = self.most = 0
        self.limit = 1_000_000
        """Files that may be open at once."""
        self.calls: list[tuple[str, str, int, int]] = []
        self.past_cache = 0
        """Writes that need no pages."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def open(self, path: str, **options: Any) -> Any:
        if self.open_files >= self.limit:
            raise OSError(errno.EMFILE, "too many open files")
        self.open_files += 1
        self.most = max(self.most, self.open_files)
        return WatchedFile(self, self._disk.open(path, **options), path.rsplit("/", 1)[1])


class WatchedFile:
    def __init__(self, disk: WatchedDisk, file: Any, name: str) -> None:
        self._disk = disk
        self._file = file
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pwritev_past_cache(self, parts: Any, offset: int) -> int:
        self._disk.past_cache += 1
        return int(self._file.pwritev_past_cache(parts, offset))

    def sync(self) -> None:
        self._file.sync()
        self._disk.calls.append(("sync", self._name, 0, self._file.size()))

    def forget(self, offset: int, size: int) -> None:
        self._file.forget(offset, size)
        self._disk.calls.append(("forget", self._name, offset, offset + size))

    def close(self) -> None:
        self._disk.open_files -= 1
        self._file.close()


def test_reads_over_many_logs_never_hold_more_files_than_the_table_has(host, run_of, records_of):
    disk, logs = watched(host, size_max=1100)
    logs.append([run_of(7, [each]) for each in range(200)])
    for log_id in [*range(199), *range(0, 199, 3)]:
        with logs.readers.reading(log_id) as file:
            assert file.pread(44, 1024) == records_of(7, [log_id])
    assert disk.open_files <= OPEN_FILES_MAX + 1, "the table, and the log that is written"
    assert disk.most <= OPEN_FILES_MAX + 2


def test_without_descriptors_a_read_takes_that_of_a_log_that_no_read_uses(host, run_of, records_of):
    disk, logs = watched(host, size_max=1100)
    logs.append([run_of(7, [each]) for each in range(20)])
    for log_id in range(8):
        with logs.readers.reading(log_id):
            pass
    disk.limit = disk.open_files
    with logs.readers.reading(3) as long_read:
        for log_id in range(8, 19):
            with logs.readers.reading(log_id) as file:
                assert file.pread(44, 1024) == records_of(7, [log_id])
        assert long_read.pread(44, 1024) == records_of(7, [3])
        assert disk.most <= disk.limit
        disk.limit = 2  # the log that is written, and the one that is read
        with pytest.raises(OSError, match="too many open files"), logs.readers.reading(0):
            pass
    with logs.readers.reading(0) as file:
        assert file.pread(44, 1024) == records_of(7, [0])


def test_fewer_files_stay_open_if_the_process_may_have_few(host, run_of, monkeypatch):
    disk, logs = watched(host, size_max=1100)
    logs.append([run_of(7, [each]) for each in range(40)])
    for log_id in range(30):
        with logs.readers.reading(log_id):
            pass
    monkeypatch.setattr(disk, "files_kept_open", lambda: 4, raising=False)
    with logs.readers.reading(30):
        pass
    assert disk.open_files == 4 + 1


def test_a_long_read_keeps_only_its_own_file_open(host, run_of, records_of):
    disk, logs = watched(host, size_max=1100)
    logs.append([run_of(7, [each]) for each in range(200)])
    with logs.readers.reading(3) as long_read:
        for log_id in [*range(4, 199), *range(4, 199)]:
            with logs.readers.reading(log_id):
                pass
        assert long_read.pread(44, 1024) == records_of(7, [3])
        assert disk.open_files <= OPEN_FILES_MAX + 2
    assert disk.open_files <= OPEN_FILES_MAX + 1


def test_looking_through_all_logs_for_garbage_leaves_the_open_files_as_they_are(host, run_of):
    logs = opened(host, size_max=1100)
    logs.append([run_of(7, [each]) for each in range(200)])
    logs.close()
    host.end()
    disk, logs = watched(host, size_max=1100)
    for log_id in logs.inactive_ids():
        assert dict(logs.contents.metadata(log_id).ledgers) == {7: 44}
    assert (disk.open_files, disk.most) == (0, 1)


def test_a_read_of_one_entry_counts_as_a_reader_of_its_log(host, run_of):
    logs = opened(host, size_max=1100)
    logs.append([run_of(7, [0]), run_of(7, [1])])
    read_id = logs.readers.begin_read(0)
    file = logs.readers.file(0)
    logs.delete(0)
    file.pread(44, 1024)
    logs.readers.end_read(read_id)
    refuses(OSError, lambda: file.pread(44, 1024), "closed")


# --- the page cache

MB = 1 << 20


@given(
    size=st.integers(1, 40 * MB),
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 30 * MB)), min_size=1, max_size=20),
)
def test_what_is_given_back_is_old_and_synced_and_each_byte_once(size, steps):
    window = PageWindow(size)
    log_id, end = 0, 0
    ends: dict[int, int] = {}
    given_to: dict[int, int] = {}
    for new_log, more in steps:
        if new_log:
            log_id, end = log_id + 1, 0
        end += more
        ends[log_id] = end
        for given_id, start, stop in window.synced(log_id, end):
            assert start == given_to.get(given_id, 0), "ranges follow each other"
            assert start < stop <= ends[given_id]
            assert stop % (2 * MB) == 0 or (stop == ends[given_id] and given_id < log_id)
            given_to[given_id] = stop
        kept = sum(ends.values()) - sum(given_to.values())
        assert kept < size + 2 * MB, "what is older than the window is given back"
        assert kept >= min(size, sum(ends.values())), "the window is kept"


def test_without_a_bound_no_page_is_given_back():
    window = PageWindow(0)
    assert [window.synced(log_id, 1000 * MB) for log_id in range(5)] == [[]] * 5


def test_pages_behind_the_window_are_given_back_once_they_are_synced(host, run_of):
    disk, logs = watched(host, size_max=13 * MB, sync_every=4 * MB, page_cache=MB)
    entries = iter(range(100))
    for _ in range(8):
        logs.append([run_of(7, [next(entries)], MB) for _ in range(5)])
    synced: dict[str, int] = {}
    forgotten: dict[str, int] = {}
    for call, name, start, end in disk.calls:
        if call == "sync":
            synced[name] = end
        else:
            assert start == forgotten.get(name, 0)
            assert end <= synced[name]
            forgotten[name] = end
    for full in ("0.log", "1.log"):
        assert forgotten[full] == len(host.disk.read(f"{FOLDER}/{full}")), "to its end"
    assert MB <= sum(map(len, map(host.disk.read, host.disk.paths()))) - sum(forgotten.values()) < 4 * MB


def test_pages_of_a_log_that_was_dropped_meanwhile_do_no_harm(host, run_of):
    logs = opened(host, size_max=5 * MB, page_cache=8 * MB)
    logs.append([run_of(7, [each], MB) for each in range(7)])
    logs.delete(0)
    placed = logs.append([run_of(7, [each], MB) for each in range(7, 20)])
    assert len(placed) == 13


@given(st.integers(1, 9 * MB), st.lists(st.tuples(st.booleans(), st.integers(1, 3 * MB)), max_size=20))
def test_pages_are_wanted_while_the_last_window_of_writes_saw_a_read(size, steps):
    window = PageWindow(size)
    reads = end = 0
    read_at = -size
    for was_read, more in steps:
        if was_read:
            reads, read_at = reads + 1, end
        assert window.wants_pages(reads) == (end - read_at < size)
        end += more
        window.synced(0, end)


def test_without_a_bound_pages_are_always_wanted():
    window = PageWindow(0)
    window.synced(0, 1000 * MB)
    assert window.wants_pages(0)


def test_a_flush_bypasses_the_page_cache_unless_entries_were_read_within_the_window(host, run_of):
    reads = 0
    disk, logs = watched(host, page_cache=2 * MB, reads=lambda: reads)
    entries = iter(range(100))

    def bypasses() -> bool:
        before = disk.past_cache
        logs.append([run_of(7, [next(entries)], MB)])
        return disk.past_cache > before

    assert bypasses()
    reads += 1
    assert [bypasses() for _ in range(3)] == [False, False, True]
    reads += 1
    assert not bypasses()


def test_with_all_pages_kept_no_flush_bypasses_the_page_cache(host, run_of):
    disk, logs = watched(host, page_cache=0)
    logs.append([run_of(7, [each], MB) for each in range(3)])
    assert disk.past_cache == 0

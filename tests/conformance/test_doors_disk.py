"""The contract of `quire.world.doors.Disk` and `File`, held by both makers. Quotes are from its docstrings."""

from __future__ import annotations

import errno

import pytest

from quire.world.doors import Disk
from quire.world.real import real_world
from simulation import Universe
from tests.support.refusals import refuses


@pytest.fixture(params=["real", "simulated"])
def door(request, tmp_path) -> tuple[Disk, str]:
    """Return a disk, and an empty folder on it."""
    if request.param == "real":
        return real_world().disk, str(tmp_path)
    disk = Universe(1).host("host").world().disk
    disk.make_dirs("/data")
    return disk, "/data"


def test_create_makes_a_missing_file_otherwise_file_not_found(door):
    """ "`create` creates a missing file; otherwise FileNotFoundError." """
    disk, root = door
    refuses(FileNotFoundError, lambda: disk.open(f"{root}/f"))
    refuses(FileNotFoundError, lambda: disk.open(f"{root}/none/f", create=True))
    disk.open(f"{root}/f", create=True).close()
    assert disk.open(f"{root}/f").size() == 0


def test_opening_with_create_keeps_what_a_file_holds(door):
    disk, root = door
    disk.open(f"{root}/f", create=True).pwrite(b"abc", 0)
    assert disk.open(f"{root}/f", create=True).pread(9, 0) == b"abc"


def test_pwrite_writes_all_at_the_offset(door):
    """ "Write all of `data` at `offset`; not durable before `sync`." """
    disk, root = door
    file = disk.open(f"{root}/f", create=True)
    file.pwrite(b"xxxxxx", 2)
    file.pwrite(memoryview(b"-yy-")[1:3], 4)
    assert file.pread(100, 0) == b"\0\0xxyyxx"
    assert file.size() == 8


@pytest.mark.parametrize("count", [0, 1, 1023, 1024, 1025, 3000])
def test_pwritev_takes_any_number_of_parts_end_to_end(door, count):
    """ "Write all `parts`, end to end, at `offset`; any number of parts. Returns the bytes written." """
    disk, root = door
    file = disk.open(f"{root}/f", create=True)
    parts = [b"%d," % index if index % 2 else memoryview(bytearray(b"%d;" % index)) for index in range(count)]
    joined = b"".join(parts)
    assert file.pwritev(parts, 5) == len(joined)
    assert file.pread(len(joined) + 9, 5) == joined


@pytest.mark.parametrize("size", [0, 100, 1 << 20])
def test_pwritev_past_cache_writes_as_pwritev_does(door, size):
    """ "As `pwritev`, for data that will hardly be read soon: it need not stay in the page cache." """
    disk, root = door
    file = disk.open(f"{root}/f", create=True)
    file.pwrite(b"before", 0)
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert file.pwritev_past_cache([data[:7], memoryview(data)[7:]], 6) == size
    file.pwrite(b"after", 6 + size)
    assert file.pread(size + 20, 0) == b"before" + data + b"after"


def test_pread_gives_fewer_bytes_only_at_the_end_of_the_file(door):
    """ "Read up to `size` bytes from `offset`; fewer only at the end of the file." """
    disk, root = door
    file = disk.open(f"{root}/f", create=True)
    file.pwrite(b"0123456789", 0)
    assert file.pread(4, 3) == b"3456"
    assert file.pread(4, 8) == b"89"
    assert file.pread(4, 10) == b""
    assert file.pread(4, 99) == b""


def test_truncate_cuts_or_extends_with_zeros(door):
    """ "Cut or extend with zeros to `size` bytes." """
    disk, root = door
    file = disk.open(f"{root}/f", create=True)
    file.pwrite(b"0123456789", 0)
    file.truncate(4)
    file.truncate(6)
    assert file.pread(99, 0) == b"0123\0\0"


def test_preallocated_space_is_zeroed_and_counts_in_the_size(door):
    """ "Reserve zeroed space [offset, offset+size), extending the file." "Return the length of the file in bytes,
    preallocated space included." """
    disk, root = door
    file = disk.open(f"{root}/f", create=True)
    file.pwrite(b"abc", 0)
    file.preallocate(0, 2)
    assert file.size() == 3
    file.preallocate(2, 5000)
    assert file.size() == 5002
    assert file.pread(9000, 0) == b"abc" + bytes(4999)


def test_what_was_synced_is_there_for_the_next_opening(door):
    disk, root = door
    file = disk.open(f"{root}/f", create=True)
    file.pwrite(b"abc", 0)
    file.sync()
    file.close()
    file.close()
    assert disk.read(f"{root}/f") == b"abc"


def test_a_closed_file_and_one_open_for_reading_refuse_writes(door):
    disk, root = door
    file = disk.open(f"{root}/f", create=True)
    file.close()
    for act in (lambda: file.pwrite(b"x", 0), lambda: file.pread(1, 0), file.sync, file.size):
        with pytest.raises(OSError, match=r"closed|Bad file|reading only"):
            act()
    refuses(OSError, lambda: disk.open(f"{root}/f", writable=False).pwrite(b"x", 0), r"closed|Bad file|reading only")


def test_read_gives_the_whole_file_or_file_not_found(door):
    """ "Read the whole of a small file; FileNotFoundError." """
    disk, root = door
    refuses(FileNotFoundError, lambda: disk.read(f"{root}/f"))


def test_write_atomic_replaces_and_leaves_nothing_else(door):
    """ "Replace a small file durably: temporary file, fsync, rename, fsync of the folder. Old or new, never torn." """
    disk, root = door
    disk.write_atomic(f"{root}/f", b"a long first value")
    disk.write_atomic(f"{root}/f", b"second")
    assert disk.read(f"{root}/f") == b"second"
    assert disk.names(root) == ["f"]


def test_what_is_stored_on_a_board_is_read_at_once_and_by_the_next_opening(door):
    """ "Store `data` there, within one sector, at once and without errors." """
    disk, folder = door
    path = f"{folder}/board"
    refuses(FileNotFoundError, lambda: disk.board(path))
    disk.write_atomic(path, bytes(1024))
    board = disk.board(path)
    board.store(512, b"first")
    board.store(512, b"again")
    board.sync()
    board.store(20, b"not synced")
    assert disk.read(path)[512:517] == b"again"
    board.close()
    data = disk.read(path)
    assert (len(data), data[20:30], data[512:517]) == (1024, b"not synced", b"again")


def test_names_are_sorted_and_a_missing_folder_is_not_found(door):
    """ "Return the names in a folder, sorted; FileNotFoundError." """
    disk, root = door
    for name in ("b", "c", "a"):
        disk.open(f"{root}/{name}", create=True).close()
    disk.make_dirs(f"{root}/aa")
    assert disk.names(root) == ["a", "aa", "b", "c"]
    refuses(FileNotFoundError, lambda: disk.names(f"{root}/none"))


def test_make_dirs_creates_parents_and_is_fine_if_it_is_there(door):
    """ "Create a folder and its parents, durably; no effect if it exists." """
    disk, root = door
    for _ in range(2):
        disk.make_dirs(f"{root}/x/y/z")
    assert disk.exists(f"{root}/x/y/z")
    assert disk.names(f"{root}/x") == ["y"]
    disk.open(f"{root}/f", create=True).close()
    refuses((FileExistsError, NotADirectoryError), lambda: disk.make_dirs(f"{root}/f/g"))


def test_a_folder_is_renamed_with_all_in_it_and_replaces_an_empty_one_only(door):
    disk, root = door
    disk.make_dirs(f"{root}/a/inside")
    disk.write_atomic(f"{root}/a/inside/f", b"1")
    disk.make_dirs(f"{root}/empty")
    disk.make_dirs(f"{root}/full/inside")
    with pytest.raises(OSError, match="not empty"):
        disk.rename(f"{root}/a", f"{root}/full")
    disk.rename(f"{root}/a", f"{root}/empty")
    assert disk.names(root) == ["empty", "full"]
    assert disk.read(f"{root}/empty/inside/f") == b"1"
    refuses(FileNotFoundError, lambda: disk.names(f"{root}/a"))


def test_rename_replaces_and_unlink_removes(door):
    disk, root = door
    disk.write_atomic(f"{root}/a", b"A")
    disk.write_atomic(f"{root}/b", b"B")
    disk.rename(f"{root}/a", f"{root}/b")
    assert (disk.exists(f"{root}/a"), disk.read(f"{root}/b")) == (False, b"A")
    disk.unlink(f"{root}/b")
    disk.sync_dir(root)
    assert not disk.exists(f"{root}/b")
    for act in (lambda: disk.unlink(f"{root}/b"), lambda: disk.rename(f"{root}/b", f"{root}/c")):
        with pytest.raises(FileNotFoundError):
            act()
    refuses(FileNotFoundError, lambda: disk.sync_dir(f"{root}/none"))


def test_link_gives_a_file_a_second_name(door):
    """ "Give a file a second name in the same file system; FileExistsError if `new` exists." """
    disk, root = door
    disk.write_atomic(f"{root}/one", b"abc")
    disk.link(f"{root}/one", f"{root}/two")
    refuses(FileExistsError, lambda: disk.link(f"{root}/one", f"{root}/two"))
    refuses(FileNotFoundError, lambda: disk.link(f"{root}/none", f"{root}/three"))
    disk.unlink(f"{root}/one")
    assert (disk.names(root), disk.read(f"{root}/two")) == (["two"], b"abc")


def test_remove_dir_removes_an_empty_folder_only(door):
    """ "Remove an empty folder; `OSError` with ENOTEMPTY if it is not empty." """
    disk, root = door
    disk.make_dirs(f"{root}/a/b")
    with pytest.raises(OSError, match="not empty") as refused:
        disk.remove_dir(f"{root}/a")
    assert refused.value.errno == errno.ENOTEMPTY
    disk.remove_dir(f"{root}/a/b")
    disk.remove_dir(f"{root}/a")
    assert disk.names(root) == []
    refuses(FileNotFoundError, lambda: disk.names(f"{root}/a"))


def test_a_removed_file_lives_on_for_those_who_have_it_open(door):
    disk, root = door
    file = disk.open(f"{root}/f", create=True)
    file.pwrite(b"abc", 0)
    disk.unlink(f"{root}/f")
    assert file.pread(3, 0) == b"abc"
    disk.open(f"{root}/f", create=True).pwrite(b"new", 0)
    assert file.pread(3, 0) == b"abc"


def test_free_bytes_is_a_positive_number_of_bytes(door):
    """ "Return the bytes that may still be written in the file system of `path`." """
    disk, root = door
    assert disk.free_bytes(root) > 0
    refuses(FileNotFoundError, lambda: disk.free_bytes(f"{root}/none"))


def test_total_bytes_is_the_size_of_the_file_system(door):
    """ "Return the size of the file system of `path`." """
    disk, root = door
    assert disk.total_bytes(root) >= disk.free_bytes(root)


def test_paths_of_one_file_system_have_its_number(door):
    """ "two paths with the same number share their space." """
    disk, root = door
    disk.make_dirs(f"{root}/a/b")
    assert disk.device(f"{root}/a/b") == disk.device(f"{root}/a") == disk.device(root)
    refuses(FileNotFoundError, lambda: disk.device(f"{root}/none"))


def test_sectors_read_counts_what_came_from_disks_and_not_from_the_page_cache(door):
    """ "Return the sectors of 512 bytes that the calling thread has read from disks so far, not from the page cache.
    None if the system does not count them." """
    disk, root = door
    file = disk.open(f"{root}/file", create=True)
    file.pwrite(bytes(1 << 20), 0)
    file.sync()
    before = disk.sectors_read()
    for _ in range(3):
        file.pread(1 << 20, 0)
    assert disk.sectors_read() == before
    file.forget(0, 1 << 20)
    file.pread(1 << 20, 0)
    after = disk.sectors_read()
    # A file system in memory forgets nothing.
    assert after is None or after == before or after - before >= 2048
    file.close()


def test_advice_changes_nothing_of_what_is_read(door):
    """ "Advise the kernel to read nothing ahead of what is asked for, or as it likes. Only a hint; never fails." """
    disk, root = door
    file = disk.open(f"{root}/file", create=True)
    file.pwrite(b"content", 0)
    for scattered in (True, False):
        file.advise(scattered=scattered)
        assert file.pread(7, 0) == b"content"
    file.close()


def test_a_cache_of_open_files_may_always_keep_a_few(door):
    """ "Return how many files a cache of open files may keep, at least 4: a part of what the process may have
    open." """
    disk, _ = door
    assert 4 <= disk.files_kept_open() <= 64


def test_a_lock_has_one_holder(door):
    """ "Take the lock file `path`; `BlockingIOError` if another process (or host) holds it." "Lock that is held until
    released or until the process dies." """
    disk, root = door
    lock = disk.lock(f"{root}/LOCK")
    refuses(BlockingIOError, lambda: disk.lock(f"{root}/LOCK"))
    lock.release()
    lock.release()
    again = disk.lock(f"{root}/LOCK")
    refuses(BlockingIOError, lambda: disk.lock(f"{root}/LOCK"))
    again.release()

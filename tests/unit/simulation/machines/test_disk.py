from __future__ import annotations

import errno
import random

import pytest

from simulation import Universe
from simulation.machines.disk import SimDisk
from simulation.machines.disk_image import SECTOR, DiskImage
from simulation.machines.power import Power, PowerCut
from simulation.machines.trace import Trace


def disk_of(image: DiskImage, fuse: int = -1) -> SimDisk:
    power = Power()
    power.fuse = fuse
    return SimDisk(image, power, Trace(), "host")


def file_with(image: DiskImage, durable: bytes):
    """Create a file /f whose name and content are durable."""
    disk = disk_of(image)
    file = disk.open("/f", create=True)
    file.pwrite(durable, 0)
    file.sync()
    disk.sync_dir("/")
    return file


def test_what_a_sync_covered_outlives_every_crash():
    for seed in range(50):
        image = DiskImage()
        file = file_with(image, b"durable")
        file.pwrite(b"-and more", 7)
        image.crash(random.Random(seed))
        assert image.read("/f").startswith(b"durable")


def test_unsynced_writes_are_lost_kept_or_torn_at_sectors():
    old, new = b"o" * 4 * SECTOR, b"n" * 4 * SECTOR
    seen = set()
    for seed in range(300):
        image = DiskImage()
        file = file_with(image, old)
        file.pwrite(new, 0)
        dropped = image.crash(random.Random(seed))
        kept = image.read("/f")
        sectors = [kept[at : at + SECTOR] for at in range(0, len(kept), SECTOR)]
        assert all(sector in (old[:SECTOR], new[:SECTOR]) for sector in sectors)
        pattern = "".join(chr(sector[0]) for sector in sectors)
        assert dropped.bytes == pattern.count("o") * SECTOR
        assert dropped.writes == ("o" in pattern)
        seen.add(pattern)
    assert {"oooo", "nnnn", "nooo", "nnno", "ooon", "onoo"} <= seen


def test_a_later_write_may_survive_where_an_earlier_one_does_not():
    seen = set()
    for seed in range(300):
        image = DiskImage()
        file = file_with(image, bytes(2 * SECTOR))
        file.pwrite(b"a" * SECTOR, 0)
        file.pwrite(b"b" * SECTOR, SECTOR)
        image.crash(random.Random(seed))
        seen.add((image.read("/f")[0] != 0, image.read("/f")[-1] != 0))
    assert seen == {(False, False), (True, False), (False, True), (True, True)}


def test_unsynced_growth_may_leave_a_hole_or_a_short_file():
    sizes = set()
    for seed in range(200):
        image = DiskImage()
        file_with(image, b"x").pwrite(b"y" * 1000, 1)
        image.crash(random.Random(seed))
        sizes.add(len(image.read("/f")))
    assert {1, 512, 1001} <= sizes


def test_a_created_name_may_vanish_until_its_folder_is_synced():
    outcomes = set()
    for seed in range(50):
        image = DiskImage()
        file = disk_of(image).open("/f", create=True)
        file.pwrite(b"x", 0)
        file.sync()
        dropped = image.crash(random.Random(seed))
        outcomes.add((image.paths() == ["/f"], dropped.names))
    assert outcomes == {(True, 0), (False, 1)}


def test_a_removed_name_may_come_back_until_its_folder_is_synced():
    outcomes = set()
    for seed in range(50):
        image = DiskImage()
        file_with(image, b"x")
        disk = disk_of(image)
        disk.unlink("/f")
        if seed % 2:
            disk.sync_dir("/")
        image.crash(random.Random(seed))
        outcomes.add((seed % 2, bool(image.paths())))
    assert outcomes == {(0, True), (0, False), (1, False)}


def test_syncing_one_folder_says_nothing_of_another():
    outcomes = set()
    for seed in range(50):
        image = DiskImage()
        disk = disk_of(image)
        disk.make_dirs("/a")
        disk.make_dirs("/b")
        disk.open("/a/f", create=True)
        disk.open("/b/g", create=True)
        disk.sync_dir("/b")
        image.crash(random.Random(seed))
        outcomes.add(tuple(image.paths()))
    assert outcomes == {("/b/g",), ("/a/f", "/b/g")}


def test_a_file_renamed_into_a_synced_folder_is_in_one_place():
    for seed in range(50):
        image = DiskImage()
        disk = disk_of(image)
        disk.make_dirs("/a")
        disk.make_dirs("/b")
        disk.open("/a/f", create=True)
        disk.rename("/a/f", "/b/f")
        disk.sync_dir("/b")
        image.crash(random.Random(seed))
        assert image.paths() == ["/b/f"]


@pytest.mark.parametrize("synced", ["", "/", "/new", "/new/inside"])
def test_a_renamed_folder_is_at_its_old_place_or_its_new_one_with_what_is_durable_in_it(synced: str):
    outcomes = set()
    for seed in range(100):
        image = DiskImage()
        disk = disk_of(image)
        disk.make_dirs("/old/inside")
        disk.write_atomic("/old/f", b"1")
        disk.write_atomic("/old/inside/h", b"1")
        disk.open("/old/g", create=True)
        disk.rename("/old", "/new")
        disk.open("/new/inside/i", create=True)
        if synced:
            disk.sync_dir(synced)
        image.crash(random.Random(seed))
        outcomes.add(tuple(image.paths()))
    new = ("/new/f", "/new/inside/h")
    with_g, with_all = ("/new/f", "/new/g", "/new/inside/h"), ("/new/f", "/new/g", "/new/inside/h", "/new/inside/i")
    assert (
        outcomes
        == {
            "": {("/old/f", "/old/inside/h"), ("/old/f", "/old/g", "/old/inside/h"), with_g, with_all},
            "/": {new, with_g, with_all},
            "/new": {with_g, with_all},
            "/new/inside": {(*new, "/new/inside/i"), with_all},
        }[synced]
    )


def test_what_is_synced_in_a_folder_stays_with_it_through_two_moves():
    for seed in range(50):
        image = DiskImage()
        disk = disk_of(image)
        disk.make_dirs("/a")
        disk.rename("/a", "/b")
        disk.rename("/b", "/c")
        disk.write_atomic("/c/f", b"1")
        image.crash(random.Random(seed))
        assert image.paths() == ["/c/f"]


def test_write_atomic_gives_old_or_new_whatever_step_the_power_goes_at():
    outcomes = set()
    for seed in range(200):
        image = DiskImage()
        disk_of(image).write_atomic("/f", b"old" * 300)
        fuse = seed % 9
        try:
            disk_of(image, fuse).write_atomic("/f", b"new" * 500)
            finished = True
        except PowerCut:
            finished = False
        image.crash(random.Random(seed))
        value = image.read("/f")
        assert value in (b"old" * 300, b"new" * 500)
        assert not finished or value == b"new" * 500
        outcomes.add((finished, value[:3]))
    assert outcomes == {(False, b"old"), (False, b"new"), (True, b"new")}


def test_a_full_disk_writes_a_prefix_and_says_so():
    image = DiskImage()
    file = file_with(image, b"0123")
    image.limit(5)
    with pytest.raises(OSError, match="No space") as failure:
        file.pwritev([b"ab", b"cdefgh"], 2)
    assert failure.value.errno == errno.ENOSPC
    assert file.pread(99, 0) == b"01abcdefg"
    file.pwrite(b"012345678", 0)  # over existing data
    for act in (lambda: file.preallocate(0, 10), lambda: file.truncate(10)):
        with pytest.raises(OSError, match="No space"):
            act()
    assert file.size() == 9
    assert disk_of(image).free_bytes("/") == 0
    file.truncate(4)
    assert disk_of(image).free_bytes("/") == 5
    disk_of(image).unlink("/f")
    assert disk_of(image).free_bytes("/") == 9
    image.limit(None)
    assert disk_of(image).free_bytes("/") > 1 << 30


def test_after_a_failed_sync_the_data_can_be_read_but_never_becomes_durable():
    image = DiskImage()
    file = file_with(image, b"old")
    file.pwrite(b"new", 0)
    image.fail_syncs(1)
    with pytest.raises(OSError, match="Input/output") as failure:
        file.sync()
    assert failure.value.errno == errno.EIO
    file.sync()
    assert file.pread(3, 0) == b"new"
    image.crash(random.Random(1))
    assert image.read("/f") == b"old"


def test_flip_and_cut_harm_what_is_durable():
    image = DiskImage()
    file_with(image, b"abc")
    image.flip("/f", 1, 0)
    image.crash(random.Random(1))
    assert image.read("/f") == b"acc"
    image.cut("/f", 2)
    image.crash(random.Random(1))
    assert image.read("/f") == b"ac"
    image.cut("/f", 4)
    assert image.read("/f") == b"ac\0\0"


def test_preallocated_space_costs_no_memory_and_reads_as_zeros():
    image = DiskImage()
    file = disk_of(image).open("/f", create=True)
    file.preallocate(0, 1 << 34)
    file.pwrite(b"x", 10)
    file.sync()
    assert file.size() == 1 << 34
    assert file.pread(12, 5) == bytes(5) + b"x" + bytes(6)


def test_a_dead_host_s_handles_do_nothing():
    image = DiskImage()
    disk = disk_of(image, fuse=2)
    file = disk.open("/f", create=True)
    file.pwrite(b"x", 0)
    for act in (file.sync, file.sync, lambda: file.pwrite(b"y", 0), lambda: disk.write_atomic("/g", b"")):
        with pytest.raises(PowerCut):
            act()
    assert image.read("/f") == b"x"


def test_a_lock_dies_with_its_holder():
    host = Universe(1).host("host")
    lock = host.world().disk.lock("/LOCK")
    host.cut_power()
    again = host.world().disk.lock("/LOCK")
    lock.release()  # by an incarnation that has ended
    host.cut_power(lose_unsynced=False)
    assert again is not None
    host.world().disk.lock("/LOCK")


def test_the_same_seed_draws_the_same_losses():
    def losses() -> list[bytes]:
        images = []
        for seed in range(20):
            image = DiskImage()
            file = file_with(image, b"o" * 2000)
            for at in range(0, 4000, 700):
                file.pwrite(b"n" * 600, at)
            image.crash(random.Random(seed))
            images.append(image.read("/f"))
        return images

    assert losses() == losses()


@pytest.mark.parametrize("lose_unsynced", [False, True])
def test_a_board_outlives_a_kill_and_may_be_set_back_by_a_power_cut(lose_unsynced):
    seen: set[bytes] = set()
    for seed in range(30):
        host = Universe(seed).host("host")
        disk = host.world().disk
        disk.write_atomic("/board", b"0" * 512)
        board = disk.board("/board")
        board.store(0, b"1")
        board.sync()
        board.store(0, b"2")
        host.cut_power(lose_unsynced=lose_unsynced)
        seen.add(host.disk.read("/board")[:1])
    assert seen == ({b"1", b"2"} if lose_unsynced else {b"2"})

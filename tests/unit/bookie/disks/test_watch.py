"""Tests of bookie/disks/watch.py and directory.py: several directories, thresholds, and what a bookie does then."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import cast

import pytest
import trio

from bookie.config import BookieConfig
from bookie.disks.partitions import check_partitions
from bookie.disks.watch import DiskWatch
from bookie.errors import DisksFullError, SharedPartitionError
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import Disk, World
from tests.unit.bookie.build import CONFIG, LEDGERS
from tests.unit.bookie.disks.partitioned import Partitioned
from tests.unit.bookie.machine import Machine

GB = 1 << 30
TWO = BookieConfig(
    ledger_directories=("/a/ledgers", "/b/ledgers"),
    journal_directories=("/j/journal",),
    disk_check_interval_ms=100,
    disk_reserve_mb=0,
    journal_prealloc_mb=0,
)
EVEN, ODD = 8, 9
"""Ledgers of the first and of the second directory."""


def takes(watch: DiskWatch, ledger_id: int) -> bool:
    return watch.rooms[ledger_id % len(watch.rooms)].take(100)


class Watched:
    """A disk watch of two ledger directories, on file systems of 100 GB."""

    def __init__(self, world: World, config: BookieConfig = TWO) -> None:
        self.sizes = {mount: [50 * GB, 100 * GB] for mount in ("/a", "/b", "/j")}
        self.disk = Partitioned(world.disk, self.sizes)
        self.watch = DiskWatch(replace(world, disk=cast(Disk, self.disk)), config)
        self.changes: list[str] = []
        self.watch.changed = lambda: self.changes.append(self.watch.reason)

    def use(self, mount: str, fraction: float) -> None:
        self.sizes[mount][0] = round(self.sizes[mount][1] * (1 - fraction))

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[DiskWatch]:
        self.watch.make_room()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.watch.run)
            await trio.sleep(0.5)
            yield self.watch
            nursery.cancel_scope.cancel()

    async def settle(self) -> DiskWatch:
        await trio.sleep(2)
        return self.watch


@pytest.mark.expect_error("no room")
async def test_a_bookie_is_read_only_as_soon_as_one_directory_is_full_and_until_none_is(world: World) -> None:
    watched = Watched(world)
    async with watched.watching() as watch:
        assert watch.reason == ""
        watched.use("/b", 0.96)
        await watched.settle()
        assert watch.reason == "/b/ledgers: 96.0 % are used, above diskUsageThreshold=0.95"
        assert watch.writable_directories == 1
        watched.use("/b", 0.94)
        await watched.settle()
        assert watch.reason == ""
    assert [bool(change) for change in watched.changes] == [True, False]


async def test_adds_that_a_measurement_has_seen_do_not_count_again(world: World) -> None:
    watched = Watched(world)
    async with watched.watching() as watch:
        for _ in range(10):
            assert watch.rooms[0].take(5 * GB)
            await watched.settle()


@pytest.mark.expect_error("no room")
async def test_otherwise_only_the_ledgers_of_a_full_directory_are_refused_until_all_are_full(world: World) -> None:
    watched = Watched(world, replace(TWO, read_only_on_any_full=False, disk_usage_low_water_mark=0.8))
    async with watched.watching() as watch:
        watched.use("/b", 0.96)
        await watched.settle()
        assert (watch.reason, watch.is_full) == ("", True)
        assert takes(watch, EVEN)
        assert not takes(watch, ODD)
        watched.use("/a", 0.96)
        await watched.settle()
        assert watch.reason.startswith("/a/ledgers: ")
        watched.use("/b", 0.9)
        await watched.settle()
        assert watch.reason, "together they are above the low-water mark"
        watched.use("/a", 0.5)
        await watched.settle()
        assert (watch.reason, watch.is_full) == ("", False)
        assert takes(watch, EVEN)
        assert takes(watch, ODD)


@pytest.mark.expect_error("no room")
async def test_a_full_journal_makes_a_bookie_read_only_for_lack_of_bytes_and_not_by_the_threshold(world: World) -> None:
    watched = Watched(world, replace(TWO, disk_reserve_mb=64, read_only_on_any_full=False))
    for mount in ("/a/ledgers", "/b/ledgers"):
        world.disk.make_dirs(mount)
    async with watched.watching() as watch:
        watched.use("/j", 0.99)
        await watched.settle()
        assert watch.reason == ""
        watched.sizes["/j"][0] = 15 << 20
        await watched.settle()
        assert "15728640 bytes are free" in watch.reason


async def test_each_directory_has_a_reserve_and_those_on_one_disk_share_its_part(world: World) -> None:
    for mount in ("/a/x", "/a/y"):
        world.disk.make_dirs(mount)
    small = replace(TWO, ledger_directories=("/a/x", "/a/y"), disk_reserve_mb=64)
    watched = Watched(world, small)
    watched.sizes["/a"] = [900 << 20, 1024 << 20]
    async with watched.watching():
        await watched.settle()
    for folder in ("/a/x", "/a/y"):
        file = world.disk.open(f"{folder}/reserve", writable=False)
        assert file.size() == 32 << 20, "a sixteenth of the disk, for both"


async def test_disks_are_compared_at_the_interval_and_more_often_while_one_is_full(world: World, log_events) -> None:
    watched = Watched(world, replace(TWO, disk_check_interval_ms=60_000, disk_usage_threshold=0.9))
    async with watched.watching() as watch:
        watched.use("/a", 0.95)
        await trio.sleep(58)
        assert not watch.is_full
        await trio.sleep(3)
        assert watch.is_full
        watched.use("/a", 0.5)
        await trio.sleep(1.5)
        assert not watch.is_full
    assert [event["event"][:7] for event in log_events if event["level"] == "error"] == ["no room"]
    log_events.clear()


async def test_a_disk_that_is_almost_full_is_said_once(world: World, log_events) -> None:
    watched = Watched(world)
    async with watched.watching() as watch:
        watched.use("/a", 0.92)
        await watched.settle()
        assert (watch.almost_full(0), watch.almost_full(1), watch.is_full) == (True, False, False)
        lines = [event for event in log_events if event["event"] == "disk almost full"]
        assert [(line["folder"], line["used"]) for line in lines] == [("/a/ledgers", 0.92)]
        watched.use("/a", 0.5)
        await watched.settle()
        assert not watch.almost_full(0)


@pytest.mark.expect_error("no room")
async def test_adds_of_high_priority_need_the_configured_bytes_on_some_disk(world: World) -> None:
    watched = Watched(world, replace(TWO, min_usable_for_urgent=4 * GB))
    async with watched.watching() as watch:
        watched.use("/a", 0.96)
        watched.use("/b", 0.95)
        await watched.settle()
        assert watch.reason
        assert watch.takes_urgent, "the second directory has 5 GB"
        watched.use("/b", 0.97)
        await watched.settle()
        assert not watch.takes_urgent
        watched.use("/a", 0.5)
        watched.use("/b", 0.5)
        await watched.settle()
        assert watch.takes_urgent


@pytest.mark.expect_error("no room")
async def test_compaction_on_a_full_disk_needs_the_configured_bytes(world: World) -> None:
    watched = Watched(world, replace(TWO, min_usable_for_entry_log=2 * GB))
    async with watched.watching() as watch:
        watched.use("/a", 0.97)
        watched.use("/b", 0.99)
        await watched.settle()
        assert (watch.may_compact(0), watch.may_compact(1)) == (True, False)
        assert (watch.full_directory(0), watch.full_directory(1)) == (True, True)


@pytest.mark.expect_error("cannot be examined", "no room")
async def test_a_disk_that_cannot_be_examined_makes_a_bookie_read_only_until_it_can(world: World) -> None:
    watched = Watched(world)
    async with watched.watching() as watch:
        watched.disk.fails = OSError(errno.EIO, "Input/output error", "/a")
        await watched.settle()
        assert "cannot be examined" in watch.reason
        watched.disk.fails = None
        await watched.settle()
        assert watch.reason == ""


@pytest.mark.expect_error("no room", "readOnlyModeEnabled=false")
async def test_a_bookie_that_may_not_be_read_only_ends_when_its_disks_are_full(world: World) -> None:
    watched = Watched(world, replace(TWO, read_only_mode_enabled=False))
    async with watched.watching() as watch:
        assert not watch.must_end.is_set()
        watched.use("/a", 0.96)
        await watched.settle()
        assert watch.must_end.is_set()
    with pytest.raises(DisksFullError, match="readOnlyModeEnabled=false"):
        watched.watch.make_room()


async def test_directories_of_one_kind_on_one_file_system_are_refused_if_it_is_configured_so(world: World) -> None:
    disk = cast(Disk, Partitioned(world.disk, {"/a": [1, 1], "/b": [1, 1], "/j": [1, 1]}))
    strict = replace(TWO, may_share_partition=False, ledger_directories=("/a/x", "/a/y"))
    with pytest.raises(SharedPartitionError, match="the ledger directories /a/x and /a/y are on the same file system"):
        check_partitions(disk, strict)
    check_partitions(disk, replace(strict, may_share_partition=True))
    check_partitions(disk, replace(strict, ledger_directories=("/a/x", "/b/y"), journal_directories=("/a/j",)))


# --- a bookie


@pytest.mark.expect_error("flushes fail", "checkpoint failed")
async def test_a_bookie_whose_flushes_fail_is_read_only_at_once_whatever_the_reason_and_comes_back(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machine.life() as (bookie, client):
        assert await client.add(7, 0) == v2.AddAcks(Rc.OK, 7, 0, 0)
        with monkeypatch.context() as patch:

            async def broken() -> None:
                raise OSError(errno.EIO, "Input/output error")

            patch.setattr(bookie.storage, "flush", broken)
            changed = bookie.state_changed
            bookie.request_flush()
            with trio.fail_after(0.5):
                await changed.wait()
            assert bookie.read_only
            assert bookie.disks.flushes_fail
            assert "Input/output error" in bookie.disks.reason
            assert await client.add(7, 1) == v2.AddAcks(Rc.READ_ONLY, 7, 1, 1)
            assert await client.add(7, 1, flags=v2.HIGH_PRIORITY) == v2.AddAcks(Rc.OK, 7, 1, 1)
            await trio.sleep(20)
            assert bookie.read_only, "no flush has passed"
        await trio.sleep(2)
        assert not bookie.read_only
        assert await client.add(7, 2) == v2.AddAcks(Rc.OK, 7, 2, 2)


@pytest.mark.expect_error("no room")
async def test_adds_that_wait_for_room_are_refused_when_the_bookie_turns_read_only(
    machine: Machine, monkeypatch
) -> None:
    machine.config = replace(CONFIG, disk_check_interval_ms=1000, add_wait_ms=600_000, disk_reserve_mb=0)
    async with machine.life() as (bookie, client):
        monkeypatch.setattr(bookie.journal, "has_room", lambda _: False)
        asked = trio.current_time()
        machine.host.disk.limit(1 << 20)
        async with trio.open_nursery() as nursery:
            answers: list[v2.Response] = []

            async def ask() -> None:
                answers.append(await client.add(7, 0))

            nursery.start_soon(ask)
            await trio.sleep(0.01)
            bookie.disks.failed("no space")
        assert answers == [v2.AddAcks(Rc.READ_ONLY, 7, 0, 0)]
        assert trio.current_time() - asked < 1


@pytest.mark.expect_error("no room")
async def test_a_bookie_above_the_threshold_takes_no_adds_but_urgent_ones_and_comes_back(machine: Machine) -> None:
    machine.config = replace(CONFIG, disk_check_interval_ms=1000, disk_usage_threshold=0.8, disk_reserve_mb=1)
    async with machine.life() as (bookie, client):
        ballast = bookie.world.disk.open("/data/ballast", create=True)
        ballast.preallocate(0, GB)
        await client.add(7, 0)
        machine.host.disk.limit(GB // 5)  # 83 % are used
        await trio.sleep(3)
        assert await client.add(7, 1) == v2.AddAcks(Rc.READ_ONLY, 7, 1, 1)
        assert await client.add(7, 1, flags=v2.HIGH_PRIORITY) == v2.AddAcks(Rc.OK, 7, 1, 1)
        assert "above diskUsageThreshold=0.8" in bookie.disks.why_full()
        bookie.disks.takes_urgent = False
        assert await client.add(7, 2, flags=v2.HIGH_PRIORITY) == v2.AddAcks(Rc.READ_ONLY, 7, 2, 2)
        machine.host.disk.limit(GB // 3)  # 75 %
        await trio.sleep(3)
        assert await client.add(7, 2) == v2.AddAcks(Rc.OK, 7, 2, 2)
        assert bookie.world.disk.exists(f"{LEDGERS}/lastMark")

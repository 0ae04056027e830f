"""Tests of bookie/disks/status.py: the file, and what a bookie obeys of it."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
import trio

from bookie.disks.status import (
    BookieStatus,
    decode_status,
    encode_status,
    read_status,
    write_status,
)
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import World
from simulation.machines.disk import SimDisk
from tests.unit.bookie.build import CONFIG, LEDGERS
from tests.unit.bookie.machine import Machine

STATUS = f"{LEDGERS}/BOOKIE_STATUS"
PERSISTENT = replace(CONFIG, persist_status=True, disk_reserve_mb=0)


@pytest.fixture
async def machine(machine: Machine) -> Machine:
    machine.config = PERSISTENT
    return machine


def test_the_bytes_are_the_originals() -> None:
    assert encode_status(BookieStatus(True, 1700000000000, True)) == b"1,READ_ONLY,1700000000000,true\n"
    assert encode_status(BookieStatus(False, 17, False)) == b"1,READ_WRITE,17,false\n"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"1,READ_ONLY,17,false\n", BookieStatus(True, 17, False)),
        (b"1,READ_WRITE,17,true", BookieStatus(False, 17, True)),
        (b"1,READ_ONLY,17\n", BookieStatus(True, 17, True)),
        (b" 1,READ_ONLY, 17 ,true \n", BookieStatus(True, 17, True)),
        (b"2,READ_ONLY,17,false\n", None),
        (b"1,READONLY,17,false\n", None),
        (b"1,READ_ONLY,soon,false\n", None),
        (b"1,READ_ONLY,-1,false\n", None),
        (b"1,READ_ONLY,17,maybe\n", None),
        (b"1,READ_ONLY\n", None),
        (b"1,READ_ONLY,17,true,x\n", None),
        (b"", None),
        (b"\xff\xfe", None),
        (b"1,READ_ONLY,17,true\n" + b"x" * 1000, None),
    ],
)
def test_what_is_not_a_status_is_ignored(data: bytes, status: BookieStatus | None) -> None:
    assert decode_status(data) == status


async def test_the_newest_of_all_directories_counts_whatever_else_is_damaged(world: World) -> None:
    folders = ("/a", "/b", "/c", "/d")
    for folder in folders:
        world.disk.make_dirs(folder)
    assert read_status(world.disk, folders) is None
    world.disk.write_atomic("/a/BOOKIE_STATUS", b"1,READ_WRITE,16,false\n")
    world.disk.write_atomic("/b/BOOKIE_STATUS", b"1,READ_ONLY,17,false\n")
    world.disk.write_atomic("/c/BOOKIE_STATUS", b"1,READ_WRITE,99,perhaps\n")
    assert read_status(world.disk, folders) == BookieStatus(True, 17, False)


async def test_one_directory_that_takes_it_is_enough(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomic = SimDisk.write_atomic

    def full(disk: SimDisk, path: str, data: bytes) -> None:
        if path.startswith("/a/"):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        write_atomic(disk, path, data)

    monkeypatch.setattr(SimDisk, "write_atomic", full)
    for folder in ("/a", "/b"):
        world.disk.make_dirs(folder)
    status = BookieStatus(True, 17, True)
    assert write_status(world.disk, ("/a", "/b"), status) == ""
    assert read_status(world.disk, ("/a", "/b")) == status
    assert "No space left" in write_status(world.disk, ("/a",), status)


async def test_a_mode_that_was_set_outlives_stops_and_crashes_until_it_is_set_again(machine: Machine) -> None:
    async with machine.life(crash=True) as (bookie, _):
        bookie.set_read_only(True)
        assert await bookie.mode.kept()
    for crash in (False, True):
        async with machine.life(crash=crash) as (bookie, client):
            await trio.sleep(30)
            assert bookie.read_only
            assert await client.add(7, 0) == v2.AddAcks(Rc.READ_ONLY, 7, 0, 0)
    async with machine.life(crash=True) as (bookie, _):
        assert bookie.world.disk.read(STATUS).endswith(b",true\n")
        bookie.set_read_only(False)
        assert await bookie.mode.kept()
    async with machine.life() as (bookie, client):
        assert not bookie.read_only
        assert await client.add(7, 0) == v2.AddAcks(Rc.OK, 7, 0, 0)


async def test_without_the_key_nothing_is_written_and_nothing_obeyed(machine: Machine) -> None:
    machine.config = replace(PERSISTENT, persist_status=False)
    async with machine.life() as (bookie, _):
        bookie.set_read_only(True)
        assert await bookie.mode.kept()
        assert not bookie.world.disk.exists(STATUS)
        bookie.world.disk.write_atomic(STATUS, b"1,READ_ONLY,17,true\n")
    async with machine.life() as (bookie, _):
        assert not bookie.read_only


async def test_a_stop_does_not_count_as_read_only(machine: Machine) -> None:
    async with machine.life() as (bookie, _):
        await bookie.mode.kept()
    async with machine.life() as (bookie, _):
        assert not bookie.read_only
        assert not bookie.world.disk.exists(STATUS)


@pytest.mark.expect_error("no room")
async def test_a_bookie_that_stopped_with_a_full_disk_starts_read_only_and_comes_back_below_the_low_water_mark(
    machine: Machine,
) -> None:
    machine.config = replace(PERSISTENT, disk_check_interval_ms=1000, disk_usage_low_water_mark=0.5)
    disk = machine.host.disk
    async with machine.life() as (bookie, client):
        ballast = bookie.world.disk.open("/data/ballast", create=True)
        ballast.preallocate(0, 1 << 30)
        ballast.sync()
        await client.add(7, 0)
        disk.limit(disk.used // 24)  # 96 % are used
        await trio.sleep(3)
        assert bookie.read_only
        assert await bookie.mode.kept()
        assert bookie.world.disk.read(STATUS).startswith(b"1,READ_ONLY,")
        assert bookie.world.disk.read(STATUS).endswith(b",false\n")
    disk.limit(disk.used * 2 // 3)  # 60 %: not above any threshold, and not below the mark
    async with machine.life() as (bookie, client):
        assert bookie.read_only
        await trio.sleep(5)
        assert bookie.read_only
        disk.limit(disk.used * 2)
        await trio.sleep(5)
        assert not bookie.read_only
        assert await client.add(7, 1) == v2.AddAcks(Rc.OK, 7, 1, 1)
        assert await bookie.mode.kept()
        assert bookie.world.disk.read(STATUS).startswith(b"1,READ_WRITE,")


async def test_a_bookie_that_stops_is_read_only_whatever_comes(machine: Machine) -> None:
    async with machine.life() as (bookie, _):
        bookie.mode.stop()
        bookie.set_read_only(False)
        assert bookie.read_only


async def test_a_file_of_an_older_original_keeps_a_bookie_read_only(machine: Machine) -> None:
    async with machine.life() as (bookie, _):
        bookie.world.disk.write_atomic(STATUS, b"1,READ_ONLY,17\n")
    async with machine.life() as (bookie, _):
        await trio.sleep(30)
        assert bookie.read_only


async def test_a_mode_that_cannot_be_stored_is_said_and_stored_later(machine: Machine, monkeypatch) -> None:
    async with machine.life() as (bookie, _):
        with monkeypatch.context() as patch:

            def full(disk: SimDisk, path: str, data: bytes) -> None:
                raise OSError(errno.ENOSPC, "No space left on device", path)

            patch.setattr(SimDisk, "write_atomic", full)
            bookie.set_read_only(True)
            assert not await bookie.mode.kept()
            assert bookie.read_only
            await trio.sleep(0.5)
        await trio.sleep(3)
        assert bookie.world.disk.exists(STATUS)
        assert await bookie.mode.kept()

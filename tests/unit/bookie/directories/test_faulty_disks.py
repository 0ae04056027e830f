"""Covers bookie/directories/apart.py and bookie/disks/measuring.py: a disk that hangs, fails or is full concerns only
its own directory. The faults are those of the simulated disk.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from bookie.bookie import STOP_MAX_S
from bookie.errors import StorageFailedError
from bookie.journal.seal import read_seal
from quire.metadata.local.memory import MemoryStore
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.v2 import Rc
from quire.wire.bookkeeper.v2_messages import AddAcks
from tests.unit.bookie.build import Client
from tests.unit.bookie.directories.rig import LEDGERS, SPREAD, fill, holds
from tests.unit.bookie.machine import Machine

MINE = (1, 4)
"""Ledgers of directory 1."""
OTHERS = (0, 2, 3, 5)
ANY = replace(SPREAD, read_only_on_any_full=False)
STALLED = "ledger directory does not answer"


async def accept(client: Client, entry_id: int) -> None:
    for ledger_id in OTHERS:
        assert await client.add(ledger_id, entry_id) == v2.AddAcks(Rc.OK, ledger_id, entry_id, entry_id)


@pytest.mark.expect_error(STALLED)
async def test_rounds_of_garbage_collection_go_on_while_a_disk_hangs(machine: Machine) -> None:
    machine.config = replace(SPREAD, gc_wait_ms=10_000, flush_interval_ms=10_000_000)
    async with machine.life() as (bookie, client):
        await fill(client)  # ledgers without metadata are garbage
        machine.host.disk.folders.hang(LEDGERS[1])
        await trio.sleep(90)
        assert bookie.storage.ledgers() == list(MINE)
        await client.add(6, 0)
        await trio.sleep(60)
        assert bookie.storage.ledgers() == list(MINE), "a round has deleted ledger 6 meanwhile"
        machine.host.disk.folders.mend(LEDGERS[1])
        await trio.sleep(60)
        assert bookie.storage.ledgers() == []


@pytest.mark.expect_error("checkpoint failed")
async def test_a_disk_that_hangs_does_not_keep_the_others_from_being_measured(machine: Machine) -> None:
    machine.config = replace(ANY, flush_interval_ms=10_000_000)
    async with machine.life() as (bookie, client):
        await fill(client)
        machine.host.disk.folders.hang(LEDGERS[1])
        await trio.sleep(5)
        machine.host.disk.folders.fill(LEDGERS[2])
        await trio.sleep(5)
        assert bookie.disks.full_directory(2)
        assert not bookie.disks.full_directory(0)
        machine.host.disk.folders.mend(LEDGERS[2])
        machine.host.disk.folders.mend(LEDGERS[1])
        await trio.sleep(60)
        await accept(client, 4)


@pytest.mark.expect_error("ledger directory failed")
async def test_a_directory_that_cannot_be_measured_fails_alone(machine: Machine) -> None:
    machine.config = replace(SPREAD, flush_interval_ms=10_000_000)
    async with machine.life() as (bookie, client):
        await fill(client)
        machine.host.disk.folders.break_(LEDGERS[1])
        await trio.sleep(5)
        assert bookie.directories.usable == [0, 2]
        assert not bookie.read_only
        await accept(client, 3)
        answer = await client.add(1, 3)
        assert isinstance(answer, AddAcks)
        assert answer.rc == Rc.IO
        machine.host.disk.folders.mend(LEDGERS[1])
    async with machine.life() as (_, client):
        await holds(client)


@pytest.mark.expect_error("checkpoint failed")
async def test_a_flush_without_room_fills_its_directory_alone(machine: Machine) -> None:
    machine.config = replace(ANY, flush_interval_ms=1000)
    async with machine.life() as (bookie, client):
        await client.add(1, 0)
        machine.host.disk.folders.fill(LEDGERS[1])
        await trio.sleep(5)
        assert not bookie.read_only
        await accept(client, 0)
        machine.host.disk.folders.mend(LEDGERS[1])
        await trio.sleep(60)
        assert await client.add(1, 1) == v2.AddAcks(Rc.OK, 1, 1, 1)


async def test_adds_ask_for_room_where_the_ledger_is(machine: Machine) -> None:
    machine.config = replace(ANY, ledger_directories=LEDGERS[:1], allow_storage_expansion=True)
    async with machine.life() as (_, client):
        await fill(client)
    machine.config = replace(machine.config, ledger_directories=LEDGERS[:2])
    async with machine.life() as (bookie, client):
        machine.host.disk.folders.fill(LEDGERS[1])
        await trio.sleep(5)
        assert bookie.disks.full_directory(1)
        assert await client.add(1, 3) == v2.AddAcks(Rc.OK, 1, 3, 3), "ledger 1 has stayed in directory 0"
        await bookie.collect_garbage(MemoryStore(machine.tree), bookie.instance_id)
        machine.host.disk.folders.mend(LEDGERS[1])


# --- a journal that begins a new file


@pytest.mark.expect_error(STALLED)
async def test_a_journal_that_begins_a_file_does_not_wait_for_a_directory_that_hangs(machine: Machine) -> None:
    """Each directory has a copy of the journal's seal, which is synced with each new file."""
    machine.config = replace(SPREAD, flush_interval_ms=10_000_000)
    async with machine.life() as (bookie, client):
        await fill(client)
        machine.host.disk.folders.hang(LEDGERS[1])
        for journal in bookie.journal.journals:
            journal.economize(True)  # it ends its file with the next group
        with trio.fail_after(1):
            await accept(client, 3)
        await trio.sleep(40)
        assert bookie.directories.usable == [0, 2], "the sync that hangs is noticed"
        with trio.fail_after(1):
            await accept(client, 4)
        machine.host.disk.folders.mend(LEDGERS[1])
        await trio.sleep(1)
        assert bookie.directories.usable == [0, 1, 2]
    async with machine.life() as (_, client):
        await holds(client, 3)


@pytest.mark.expect_error("ledger directory failed")
async def test_a_directory_whose_copy_of_a_seal_cannot_be_synced_fails_alone(machine: Machine) -> None:
    machine.config = replace(SPREAD, flush_interval_ms=10_000_000, disk_check_interval_ms=10_000_000)
    async with machine.life() as (bookie, client):
        await fill(client)
        seal = f"{LEDGERS[1]}/current/lastMark.0.sealed"
        machine.host.disk.folders.break_(seal)  # alone: the measuring of the disk would notice a broken folder too
        for journal in bookie.journal.journals:
            journal.economize(True)
        await accept(client, 3)
        await trio.sleep(5)
        assert bookie.directories.usable == [0, 2]
        machine.host.disk.folders.mend(seal)
    async with machine.life() as (_, client):
        await holds(client, 3)


async def test_the_seals_of_a_new_file_are_durable_soon(machine: Machine) -> None:
    """A power cut then finds that the journal must reach the new file."""
    machine.config = replace(SPREAD, flush_interval_ms=10_000_000)
    async with machine.life(crash=True) as (bookie, client):
        await fill(client)
        journal = bookie.journal.journals[0]
        journal.economize(True)
        await accept(client, 3)
        await trio.sleep(1)
        begun = journal.mark().file_id
    disk = machine.host.world().disk
    for folder in LEDGERS:
        seal = read_seal(disk, f"{folder}/current/lastMark.0.sealed")
        assert seal is not None
        assert seal.end is not None
        assert seal.end.file_id == begun, folder


# --- a stop


@pytest.mark.expect_error("stop abandoned", "ledger directory failed")
@pytest.mark.parametrize("noticed", [False, pytest.param(True, marks=pytest.mark.expect_error(STALLED))])
async def test_a_stop_with_a_directory_that_hangs_ends_at_its_deadline(machine: Machine, noticed: bool) -> None:
    machine.config = replace(SPREAD, flush_interval_ms=1000)
    began = 0.0

    async def stopped() -> None:
        nonlocal began
        async with machine.life() as (_, client):
            await fill(client)
            machine.host.disk.folders.hang(LEDGERS[1])
            await trio.sleep(45 if noticed else 0)
            began = trio.current_time()

    with pytest.RaisesGroup(pytest.RaisesExc(StorageFailedError, match="stop abandoned")):
        await stopped()
    assert trio.current_time() - began <= STOP_MAX_S + 1
    machine.host.disk.folders.mend(LEDGERS[1])
    async with machine.life() as (_, client):
        await holds(client)

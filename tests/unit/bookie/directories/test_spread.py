"""Covers bookie/directories with checkpoints.py and recovery.py: a bookie with several directories of each kind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookie.bookie import Bookie
from bookie.errors import CookieMismatchError, StorageDamagedError
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import World
from tests.unit.bookie.build import CONFIG, KEY, Client, add_frames, opened, run_of
from tests.unit.bookie.directories.rig import ALL, JOURNALS, LEDGERS, SPREAD, fill, holds, marks
from tests.unit.bookie.machine import Machine


@pytest.fixture
async def spread(machine: Machine) -> Machine:
    machine.config = SPREAD
    return machine


async def test_each_ledger_is_in_one_directory_and_one_journal(world: World, tree) -> None:
    async with opened(world, tree, SPREAD) as bookie:
        client = Client(bookie)
        await fill(client)
        await holds(client)
        await bookie.checkpoint()
        assert [storage.ledgers() for storage in bookie.storage.directories] == [[0, 3], [1, 4], [2, 5]]
        assert [journal.groups > 0 for journal in bookie.journal.journals] == [True, True]
        await holds(client)
        marked = [journal.mark() for journal in bookie.journal.journals]
        assert bookie.last_marks == marked
        assert [marks(world, directory) for directory in range(3)] == [marked] * 3
    for folder in LEDGERS:
        assert "DIRTY" not in world.disk.names(f"{folder}/current")
    assert not any(name.startswith("lastMark") for name in world.disk.names(f"{JOURNALS[0]}/current"))


async def test_one_journal_has_the_mark_without_a_number_in_every_directory(world: World, tree) -> None:
    async with opened(world, tree, replace(SPREAD, journal_directories=JOURNALS[:1])) as bookie:
        await fill(Client(bookie))
    for folder in LEDGERS:
        names = [name for name in world.disk.names(f"{folder}/current") if name.startswith("lastMark")]
        assert names == ["lastMark", "lastMark.sealed"]


async def test_several_journals_serve_one_directory(machine: Machine) -> None:
    machine.config = replace(CONFIG, journal_directories=JOURNALS)
    async with machine.life(crash=True) as (_, client):
        await fill(client)
    async with machine.life() as (_, client):
        await holds(client)


async def test_what_was_acknowledged_is_there_after_a_crash_and_after_a_stop(spread: Machine) -> None:
    async with spread.life(crash=True) as (bookie, client):
        await fill(client)
        await bookie.checkpoint()
        await fill(client, 3, 3)
        assert (await client.fence(4)).rc == Rc.OK
    async with spread.life() as (_, client):
        await holds(client, 6)
        assert await client.add(4, 6) == v2.AddAcks(Rc.FENCED, 4, 6, 6)
    async with spread.life() as (_, client):
        await holds(client, 6)
        assert await client.add(4, 6) == v2.AddAcks(Rc.FENCED, 4, 6, 6)


@pytest.mark.parametrize("seed", range(25))
async def test_what_was_acknowledged_survives_a_crash_at_any_change_to_the_disks(spread: Machine, seed: int) -> None:
    acked: dict[int, int] = dict.fromkeys(ALL, 0)
    fenced: list[int] = []

    async def work(bookie: Bookie) -> None:
        client, owner = Client(bookie), Client(bookie)
        for step in range(40):
            for ledger_id in ALL:
                client.send(add_frames(ledger_id, acked[ledger_id], 2))
            for answer in await client.take(len(ALL)):
                assert isinstance(answer, v2.AddAcks)
                assert answer.rc == Rc.OK
                acked[answer.ledger_id] = answer.last + 1
            if step % 3 == seed % 3:
                bookie.request_flush(step % 3)
            if step % 7 == 0:
                ledger_id = 1000 + 100 * len(fenced) + step
                await owner.fence(ledger_id)
                fenced.append(ledger_id)

    spread.config = replace(SPREAD, journal_size_max_mb=1, journal_prealloc_mb=0)
    for round_ in range(3):
        await spread.live(work, crash_after=60 + (seed * 37 + round_ * 61) % 250)
        async with spread.life() as (_, client):
            for ledger_id in ALL:
                await client.holds(ledger_id, range(acked[ledger_id]))
            for ledger_id in fenced:
                assert await client.add(ledger_id, 0) == v2.AddAcks(Rc.FENCED, ledger_id, 0, 0)
    assert all(acked.values())


async def test_the_marks_do_not_move_before_every_directory_has_flushed(world: World, tree) -> None:
    async with opened(world, tree, replace(SPREAD, flush_interval_ms=10_000_000)) as bookie:
        begun = bookie.last_marks[:]
        await fill(Client(bookie))
        checkpoints = bookie._checkpoints
        for directory in range(3):
            assert bookie.last_marks == begun
            await checkpoints._make_one(directory)
            await checkpoints._move()
        assert bookie.last_marks == [journal.mark() for journal in bookie.journal.journals]


async def test_a_deleted_ledger_is_released_when_the_mark_of_its_journal_has_passed_it(world: World, tree) -> None:
    async with opened(world, tree, SPREAD) as bookie:
        client = Client(bookie)
        await fill(client)
        await bookie.storage.delete_ledger(4)
        assert 4 in bookie.storage.held_ledgers
        await bookie.checkpoint()
        assert 4 not in bookie.storage.held_ledgers
        assert await client.add(4, 0) == v2.AddAcks(Rc.OK, 4, 0, 0)


# --- storage expansion


async def test_ledgers_stay_readable_and_writable_when_a_directory_is_added(spread: Machine) -> None:
    spread.config = replace(SPREAD, ledger_directories=LEDGERS[:2])
    async with spread.life() as (_, client):
        await fill(client)
        await client.fence(5)
    spread.config = SPREAD
    with pytest.raises(CookieMismatchError, match="allowStorageExpansion=true"):
        async with spread.life():
            pass
    spread.config = replace(SPREAD, allow_storage_expansion=True)
    async with spread.life(crash=True) as (bookie, client):
        await holds(client)
        assert await client.add(5, 3) == v2.AddAcks(Rc.FENCED, 5, 3, 3)
        for ledger_id in (0, 1, 2, 3, 4):
            assert await client.add(ledger_id, 3) == v2.AddAcks(Rc.OK, ledger_id, 3, 3)
        await client.add(8, 0)
        assert [storage.ledgers() for storage in bookie.storage.directories] == [[0, 2, 4], [1, 3, 5], [8]]
    spread.config = SPREAD
    async with spread.life() as (bookie, client):
        await client.holds(8, [0])
        for ledger_id in (0, 1, 2, 3, 4):
            await client.holds(ledger_id, range(4))
        assert [storage.ledgers() for storage in bookie.storage.directories] == [[0, 2, 4], [1, 3, 5], [8]]


async def test_a_ledger_takes_the_room_of_the_directory_that_it_is_in_when_one_is_added(spread: Machine) -> None:
    spread.config = replace(SPREAD, ledger_directories=LEDGERS[:2])
    async with spread.life() as (_, client):
        await fill(client)
    spread.config = replace(SPREAD, allow_storage_expansion=True, read_only_on_any_full=False)
    async with spread.life() as (bookie, client):
        # Ledgers 2 and 5 belong into directory 2, and are in 0 and 1. Ledger 8 is new.
        for full, taken in ((2, {2, 5}), (1, {2, 8}), (0, {5, 8})):
            for ledger_id, entry_id in ((2, 3), (5, 3), (8, 0)):
                bookie.disks.rooms[full].threshold("full")  # until the disks are measured
                answer = await client.add(ledger_id, entry_id)
                bookie.disks.rooms[full].threshold("")
                rc = Rc.OK if ledger_id in taken else Rc.READ_ONLY
                assert answer == v2.AddAcks(rc, ledger_id, entry_id, entry_id)


async def test_a_ledger_that_the_original_continued_in_another_directory_is_read_from_both(spread: Machine) -> None:
    spread.config = replace(SPREAD, ledger_directories=LEDGERS[:2])
    async with spread.life() as (_, client):
        await client.add(2, 0, 3)
        await client.fence(2)
    spread.config = replace(SPREAD, allow_storage_expansion=True)
    async with spread.life() as (bookie, client):
        # As the original: it looks in directory 2, knows nothing of the ledger there, and takes more entries.
        storage = bookie.storage.directories[2]
        storage.set_master_key(2, KEY)
        storage.add(run_of(2, 3, 2))
    async with spread.life() as (bookie, client):
        assert bookie.storage.of(2) is bookie.storage.directories[2]
        await client.holds(2, range(5))
        assert list(bookie.storage.reader.entry_ids(2)) == [0, 1, 2, 3, 4]
        assert bookie.storage.reader.last_entry_id(2) == 4
        assert await client.add(2, 5) == v2.AddAcks(Rc.FENCED, 2, 5, 5)


async def test_the_fence_of_a_deleted_ledger_is_remembered_when_a_directory_is_added(spread: Machine) -> None:
    spread.config = replace(SPREAD, ledger_directories=LEDGERS[:2])
    async with spread.life() as (bookie, client):
        await client.add(2, 0, 3)
        await client.fence(2)
        await bookie.storage.delete_ledger(2)
    spread.config = replace(SPREAD, allow_storage_expansion=True)
    async with spread.life() as (_, client):
        assert await client.add(2, 3) == v2.AddAcks(Rc.FENCED, 2, 3, 3)


async def test_a_crash_while_a_directory_is_added_is_survived_at_every_step(spread: Machine) -> None:
    spread.config = replace(SPREAD, ledger_directories=LEDGERS[:2])
    async with spread.life(crash=True) as (_, client):
        await fill(client)
    spread.config = replace(SPREAD, allow_storage_expansion=True)

    async def nothing(_: Bookie) -> None: ...

    for changes in range(1, 60):
        await spread.live(nothing, crash=True, crash_after=changes)
    async with spread.life() as (_, client):
        await holds(client)


async def test_a_directory_that_has_served_is_not_created_again(spread: Machine) -> None:
    async with spread.life() as (_, client):
        await fill(client)
    spread.host.maps.remove(f"{LEDGERS[1]}/current/ledgers")
    with pytest.raises(StorageDamagedError, match="ledgers1/current/ledgers is missing"):
        async with spread.life():
            pass

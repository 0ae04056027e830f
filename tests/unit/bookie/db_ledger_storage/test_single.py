"""Reads of single entries: the fast path returns the right entry, or leaves it to the thorough path."""

from __future__ import annotations

import pytest

from bookie.db_ledger_storage.options import StorageOptions
from bookie.db_ledger_storage.single import read_single
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.errors import NoEntryError, StorageDamagedError
from quire.world.doors import World
from tests.support.refusals import refuses
from tests.unit.bookie.build import entry, open_storage, run_of

LOG = "/b/current/0.log"


@pytest.fixture
async def storage(world: World) -> DbLedgerStorage:
    storage = await open_storage(world, StorageOptions(read_ahead_entries=8))
    storage.set_master_key(7, b"k")
    return storage


def single(storage: DbLedgerStorage, ledger_id: int, entry_id: int) -> bytes | None:
    found = read_single(storage._logs, storage._locations, ledger_id, entry_id)
    return None if found is None else bytes(found)


def flip(world: World, place: int) -> None:
    file = world.disk.open(LOG)
    byte = file.pread(1, place)
    file.pwrite(bytes([byte[0] ^ 1]), place)
    file.close()


async def test_every_entry_but_the_last_of_the_log_is_read_at_once(storage: DbLedgerStorage) -> None:
    storage.add(run_of(7, 0, 20))
    storage.add(run_of(8, 0, 3, bytes(5000)))
    storage.add(run_of(9, 0, 3, bytes(300_000)))
    await storage.flush()
    for ledger_id, count, payload in ((7, 20, b""), (8, 3, bytes(5000)), (9, 2, bytes(300_000))):
        for entry_id in range(count):
            assert single(storage, ledger_id, entry_id) == entry(ledger_id, entry_id, payload)
    assert single(storage, 9, 2) is None
    assert bytes(storage.reader.read_entry(9, 2)) == entry(9, 2, bytes(300_000))


async def test_what_is_not_in_the_index_is_told_by_the_thorough_way(storage: DbLedgerStorage) -> None:
    storage.add(run_of(7, 0, 2))
    await storage.flush()
    assert single(storage, 7, 5) is None
    refuses(NoEntryError, lambda: storage.reader.read_entry(7, 5))


@pytest.mark.parametrize("byte", [0, 1, 2, 3, 4, 11, 12, 19])
async def test_a_flipped_bit_in_size_or_ids_is_damage_and_never_another_entry(byte, storage, world):
    storage.add(run_of(7, 0, 20))
    await storage.flush()
    place = storage._locations.get(7, 5) & 0xFFFFFFFF
    flip(world, place - 4 + byte)
    assert single(storage, 7, 5) is None
    refuses(StorageDamagedError, lambda: storage.reader.read_entry(7, 5))


async def test_who_reads_one_after_the_other_gets_the_next_ones_from_memory_and_who_jumps_does_not(storage):
    storage.add(run_of(7, 0, 100))
    await storage.flush()
    for entry_id in (50, 3, 80, 20):
        storage.reader.read_entry(7, entry_id)
        assert storage.reader.get_cached(7, entry_id + 1) is None
    assert storage.stats.disk_reads == 4
    storage.reader.read_entry(7, 21)
    assert storage.reader.get_cached(7, 22) is not None

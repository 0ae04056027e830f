"""Covers bookie/db_ledger_storage/log_map.py and log_ledgers.py."""

from __future__ import annotations

import pytest

from bookie.db_ledger_storage.log_contents import LogMetadata
from bookie.db_ledger_storage.log_map import decode_row, encode_row
from bookie.db_ledger_storage.options import StorageOptions
from bookie.db_ledger_storage.storage import DbLedgerStorage
from simulation.machines.host import Host
from tests.unit.bookie.build import open_storage
from tests.unit.bookie.db_ledger_storage.compaction_rig import LOG_SIZE, fill, held, live, logs_of

KEPT = StorageOptions(log_size_max=LOG_SIZE, keep_log_map=True)


def test_a_row_is_the_originals_with_a_seal_behind_it() -> None:
    row = encode_row(LogMetadata(log_id=5, size=900, records=700, ledgers={1: 300, 7: 100}, proven=True))
    assert row[:66].hex() == (
        "0000" + "0000000000000005" + "00000000000002bc" + "0000000000000190" + "0000000000000002"
        "0000000000000001" + "000000000000012c" + "0000000000000007" + "0000000000000064"
    )
    found = decode_row(5, row)
    assert found is not None
    assert (found.ledgers, found.records, found.proven) == ({1: 300, 7: 100}, 700, True)


def test_a_row_of_the_original_or_one_with_a_flipped_bit_proves_nothing() -> None:
    row = encode_row(LogMetadata(log_id=5, size=900, records=700, ledgers={1: 300}, proven=True))
    bare = decode_row(5, row[: 34 + 16])
    assert bare is not None
    assert not bare.proven
    for at in range(34, 34 + 16):
        flipped = decode_row(5, row[:at] + bytes([row[at] ^ 1]) + row[at + 1 :])
        assert flipped is None or not flipped.proven
    assert [decode_row(5, wrong) for wrong in (b"", row[:33], b"\0\1" + row[2:])] == [None] * 3
    assert decode_row(6, row) is None


async def restarted(host: Host, storage: DbLedgerStorage) -> DbLedgerStorage:
    await storage.close()
    host.end()
    return await open_storage(host.world(), KEPT)


async def test_a_start_reads_no_log_whose_ledgers_are_in_the_map(monkeypatch, host):
    storage = await open_storage(host.world(), KEPT)
    await fill(storage, {1: range(5), 2: range(5)})
    await fill(storage, {1: range(5, 10), 3: range(5)})
    await fill(storage, {4: range(3)})
    await storage.collect_garbage(live(1, 2, 3, 4))
    usages = storage.log_usages()
    storage = await restarted(host, storage)
    read = storage._logs.contents.read
    asked: list[int] = []

    def noted(log_id: int):
        asked.append(log_id)
        return read(log_id)

    monkeypatch.setattr(storage._logs.contents, "read", noted)
    await storage.collect_garbage(live(1, 2, 3, 4))
    assert [usage[:4] for usage in storage.log_usages()][:2] == [usage[:4] for usage in usages]
    assert asked == [2], "the log that was written when the bookie stopped"
    assert (await storage.collect_garbage(live(1, 3, 4))).logs == ()
    assert [usage.remaining for usage in storage.log_usages()] == [220, 440, 132]
    storage = await restarted(host, storage)
    assert (await storage.collect_garbage(live(4))).logs == (0, 1)


async def test_the_map_may_have_a_folder_of_its_own_and_forgets_logs_that_are_gone(host):
    options = StorageOptions(log_size_max=LOG_SIZE, keep_log_map=True, log_map_folder="/elsewhere")
    storage = await open_storage(host.world(), options)
    await fill(storage, {1: range(10)})
    await fill(storage, {2: range(10)})
    await fill(storage, {3: range(10)})
    await storage.collect_garbage(live(1, 2, 3))
    await storage.close()
    host.end()
    world = host.world()
    world.disk.unlink("/b/current/0.log")
    storage = await open_storage(world, options)
    assert storage._log_map is not None
    assert storage._log_map._rows is not None
    assert [int.from_bytes(key, "big") for key, _ in storage._log_map._rows.scan(b"", b"\x80")] == [1]


@pytest.mark.parametrize("sealed", [False, True])
async def test_a_ledger_that_is_made_again_keeps_the_log_of_its_new_life_only(host, sealed):
    storage = await open_storage(host.world(), KEPT)
    await fill(storage, {1: range(10)})
    await fill(storage, {2: range(4)})
    assert (await storage.collect_garbage(live(2))).logs == (0,)
    await fill(storage, {1: range(2)})  # into the log of ledger 2
    if sealed:
        storage = await restarted(host, storage)
    else:
        host.cut_power()
        storage = await open_storage(host.world(), KEPT)
    assert (await storage.collect_garbage(live(1))).logs == ()
    assert set(held(storage, 1, range(20))) == {0, 1}
    assert (await storage.collect_garbage(live())).logs[-1:] == (1,)  # a crash may have brought back log 0
    assert logs_of(host) == []


async def test_a_log_that_a_crash_left_is_not_read_to_learn_what_it_holds(host):
    storage = await open_storage(host.world(), KEPT)
    await fill(storage, {1: range(3), 2: range(3)})
    await fill(storage, {2: range(3, 5)})
    host.cut_power()
    storage = await open_storage(host.world(), KEPT)
    host.disk.flip("/b/current/0.log", 1024 + 3, 4)  # the size of the first record: no scan gets past it
    await storage.collect_garbage(live(1, 2))
    [usage] = storage.log_usages()
    assert (usage.ledgers, usage.remaining, usage.proven) == (2, 8 * 44, True)
    assert (await storage.collect_garbage(live(2))).logs == ()
    assert (await storage.collect_garbage(live())).logs == (0,)
    assert storage.stats.garbage_steps == 0

"""Compactions that count only when whole. Covers bookie/db_ledger_storage/compaction/whole.py and whole_files.py.

A crash at each step: test_compaction_crashes.py."""

from __future__ import annotations

import pytest

from bookie.db_ledger_storage.compaction.compactor import DAMAGED
from bookie.db_ledger_storage.compaction.plan import CompactionKind
from bookie.db_ledger_storage.storage import DbLedgerStorage
from simulation.machines.host import Host
from tests.unit.bookie.build import open_storage
from tests.unit.bookie.db_ledger_storage.compaction_rig import FOLDER, compact, fill, held, live, logs_of, options
from tests.unit.bookie.db_ledger_storage.conftest import entry_of


@pytest.fixture
async def storage(host: Host) -> DbLedgerStorage:
    return await open_storage(host.world(), options(whole=True))


def entries(ledger_id: int, ids: range, version: int = 0) -> dict[int, bytes]:
    return {each: entry_of(ledger_id, each, version=version) for each in ids}


async def two_logs(storage: DbLedgerStorage) -> None:
    for index in range(2):
        await fill(storage, {1: range(5 * index, 5 * index + 5), 10 + index: range(5)})
    await fill(storage, {2: range(3)})


async def again(host: Host, storage: DbLedgerStorage) -> DbLedgerStorage:
    """Close the storage and open it anew."""
    await storage.close()
    host.end()
    return await open_storage(host.world(), options(whole=True))


def write(host: Host, name: str, data: bytes) -> None:
    """Write a file of a stopped bookie."""
    disk = host.world().disk
    file = disk.open(f"{FOLDER}/{name}", create=True)
    file.pwrite(data, 0)
    file.sync()
    file.close()
    disk.sync_dir(FOLDER)
    host.end()


async def test_each_log_is_copied_to_a_log_of_its_own(host, storage):
    await two_logs(storage)
    compacted = await compact(storage, 1, 2)
    assert (compacted.logs, compacted.stayed, compacted.entries) == ([0, 1], {}, 10)
    assert logs_of(host) == ["2.log", "3.log", "4.log"]
    assert held(storage, 1, range(20)) == entries(1, range(10))
    storage = await again(host, storage)
    assert held(storage, 1, range(20)) == entries(1, range(10))
    assert (await storage.collect_garbage(live(2))).logs == (3, 4)


@pytest.mark.expect_error("an entry is damaged")
async def test_a_log_with_a_damaged_entry_is_not_copied_at_all(host, storage):
    await two_logs(storage)
    host.disk.flip(f"{FOLDER}/0.log", 1024 + 2 * 44 + 14, 5)
    compacted = await compact(storage, 1, 2)
    assert (compacted.logs, compacted.stayed) == ([1], {0: f"{DAMAGED}: 1"})
    assert logs_of(host) == ["0.log", "2.log", "4.log"]
    assert storage._locations.get(1, 0) >> 32 == 0


async def test_a_compaction_that_ends_while_it_copies_changes_nothing(host, storage):
    await two_logs(storage)
    await storage.collect_garbage(live(1, 2))
    asked = iter([True, True])
    compacted = await storage.compact(CompactionKind.MAJOR, 0.9, 0, lambda: next(asked, False))
    assert compacted.logs == []
    assert logs_of(host) == ["0.log", "1.log", "2.log"]
    assert held(storage, 1, range(20)) == entries(1, range(10))


async def test_a_log_that_counts_is_finished_by_the_next_round(host, storage):
    await two_logs(storage)
    await storage.collect_garbage(live(1, 2))
    asked: list[None] = []

    def until_it_counts() -> bool:
        asked.append(None)
        return not any(name.endswith(".compacted") for name in logs_of(host))

    compacted = await storage.compact(CompactionKind.MAJOR, 0.9, 0, until_it_counts)
    assert (compacted.logs, logs_of(host)) == ([], ["0.log", "1.log", "2.log", "3.log", "3.log.0.compacted"])
    assert storage._logs.inactive_ids() == [1], "neither log of it may go, or be compacted"
    await storage.collect_garbage(live(1, 2))
    assert logs_of(host) == ["1.log", "2.log", "3.log"]
    assert held(storage, 1, range(20)) == entries(1, range(10))


async def test_what_the_original_left_is_finished_or_deleted(host, storage, log_events):
    """The original has written no row yet, or, by its issue 4804, rows into a log whose name is in decimal."""
    await two_logs(storage)
    storage = await again(host, storage)
    old = host.disk.read(f"{FOLDER}/0.log")
    storage._locations.move(0, [(1, 0, (0x1F << 32) | 1028)])
    storage._locations.sync()
    await storage.close()
    host.end()
    write(host, "1f.log.0.compacted", old)
    write(host, "31.log", old)
    write(host, "20.log.compacting", b"half a copy")
    write(host, "zz.log.0.compacted", b"")
    storage = await open_storage(host.world(), options())
    assert [event["file"] for event in log_events if "left alone" in event["event"]] == ["zz.log.0.compacted"]
    assert held(storage, 1, range(20)) == entries(1, range(10)), "a row may point into it already"
    await storage.collect_garbage(live(1, 2, 10, 11))
    assert logs_of(host) == ["1.log", "1f.log", "2.log", "31.log", "zz.log.0.compacted"]
    assert held(storage, 1, range(20)) == entries(1, range(10))
    assert {storage._locations.get(1, each) >> 32 for each in range(5)} == {0x1F}
    await compact(storage, 1, 2)
    assert held(storage, 1, range(20)) == entries(1, range(10))
    storage = await again(host, storage)
    assert held(storage, 1, range(20)) == entries(1, range(10))


async def test_the_last_of_several_copies_in_a_log_of_the_original_counts(host, storage):
    """A ledger whose id was used twice has entries of both lives there."""
    await fill(storage, {1: range(3), 10: range(2)})
    await fill(storage, {1: range(3)}, version=5)
    await fill(storage, {2: range(3)})
    storage = await again(host, storage)
    data = host.disk.read(f"{FOLDER}/0.log")
    await storage.close()
    host.end()
    write(host, "9.log.0.compacted", data)
    storage = await open_storage(host.world(), options())
    await storage.collect_garbage(live(1, 2))
    assert "0.log" not in logs_of(host)
    assert held(storage, 1, range(5)) == entries(1, range(3), version=5)

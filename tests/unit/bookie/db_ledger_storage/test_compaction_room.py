"""Compaction on a disk with little room: the look for room in bookie/db_ledger_storage/compaction/compactor.py."""

from __future__ import annotations

from bookie.db_ledger_storage.compaction.plan import CompactionKind, CompactionOptions
from bookie.db_ledger_storage.options import StorageOptions
from simulation.machines.host import Host
from tests.unit.bookie.build import open_storage
from tests.unit.bookie.db_ledger_storage.compaction_rig import compact, fill, held, live, logs_of, options
from tests.unit.bookie.db_ledger_storage.conftest import entry_of, run_of

DISK = 64 << 20
SIZE = 64 << 10


async def test_a_compaction_does_not_begin_without_room_for_its_copies(host: Host) -> None:
    storage = await open_storage(host.world(), options())
    await fill(storage, {1: range(5), 10: range(5)})
    await fill(storage, {2: range(3)})
    await storage.collect_garbage(live(1, 2))
    host.disk.limit(10_000)
    compacted = await storage.compact(CompactionKind.MAJOR, 0.9)
    assert (compacted.logs, compacted.copied_bytes) == ([], 0)
    assert "no room for its copies" in compacted.stayed[0]
    assert logs_of(host) == ["0.log", "1.log"]
    host.disk.limit(None)
    assert (await compact(storage, 1, 2)).logs == [0]


async def test_a_full_disk_gets_free_by_compaction_alone(host: Host) -> None:
    """Each log of 4 MB has one entry that is needed; no log can be deleted as it is."""
    settings = StorageOptions(
        log_size_max=4 << 20,
        compaction=CompactionOptions(rate=0),
        write_cache_bytes_max=16 << 20,
        flush_at_bytes=8 << 20,
    )
    storage = await open_storage(host.world(), settings)
    host.disk.limit(DISK)
    filled = 0
    while host.disk.free > 5 << 20:
        storage.set_master_key(1, b"k")
        storage.set_master_key(2, b"k")
        storage.add(run_of(1, [filled], SIZE))
        for entry_id in range(60 * filled, 60 * filled + 60):
            storage.add(run_of(2, [entry_id], SIZE))
        await storage.flush()
        filled += 1
    assert filled > 10
    collected = await storage.collect_garbage(live(1))
    assert (collected.ledgers, collected.bytes) == ((2,), 0), "every log has an entry that is needed"
    assert host.disk.free <= 5 << 20
    compacted = await storage.compact(CompactionKind.MAJOR, 0.9)
    assert len(compacted.logs) >= filled - 2
    assert host.disk.free > DISK - (12 << 20)
    assert held(storage, 1, range(filled)) == {each: entry_of(1, each, SIZE) for each in range(filled)}

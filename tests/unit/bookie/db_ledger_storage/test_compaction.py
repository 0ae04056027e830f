"""Compaction of entry logs. Covers bookie/db_ledger_storage/compaction/."""

from __future__ import annotations

import pytest
import trio

from bookie.db_ledger_storage.compaction import compactor, copying
from bookie.db_ledger_storage.compaction.compactor import DAMAGED
from bookie.db_ledger_storage.compaction.plan import CompactionKind
from bookie.db_ledger_storage.entry_log_format import HEADER_LENGTH
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.errors import NoLedgerError
from simulation.machines.disk import SimFile
from simulation.machines.host import Host
from tests.support.refusals import refuses
from tests.unit.bookie.build import open_storage
from tests.unit.bookie.db_ledger_storage.compaction_rig import FOLDER, compact, fill, held, live, logs_of, options
from tests.unit.bookie.db_ledger_storage.conftest import entry_of, run_of


@pytest.fixture
async def storage(host: Host) -> DbLedgerStorage:
    return await open_storage(host.world(), options())


def entries(ledger_id: int, ids: range, version: int = 0) -> dict[int, bytes]:
    return {each: entry_of(ledger_id, each, version=version) for each in ids}


async def half_empty(storage: DbLedgerStorage, logs: int = 2) -> None:
    """Fill logs, each with five entries of ledger 1 and five of one that is deleted later."""
    for index in range(logs):
        await fill(storage, {1: range(5 * index, 5 * index + 5), 10 + index: range(5)})


async def test_what_is_left_of_a_log_is_moved_and_the_log_deleted(host, storage):
    await half_empty(storage)
    await fill(storage, {2: range(3)})
    compacted = await compact(storage, 1, 2)
    assert (compacted.logs, compacted.stayed, compacted.entries) == ([0, 1], {}, 10)
    assert logs_of(host) == ["2.log", "3.log"]
    assert held(storage, 1, range(20)) == entries(1, range(10))
    assert storage.reader.last_entry_id(1) == 9
    assert storage.stats.compacted_bytes == compacted.reclaimed_bytes > 0
    await storage.close()
    host.end()
    storage = await open_storage(host.world(), options())
    assert held(storage, 1, range(20)) == entries(1, range(10))


async def test_a_log_that_is_full_enough_stays(host, storage):
    await half_empty(storage)
    await fill(storage, {2: range(3)})
    assert (await compact(storage, 1, 2, threshold=0.5)).chosen == 0
    assert (await compact(storage, 1, 2, threshold=0.51)).logs == [0, 1]


async def test_the_logs_that_are_written_are_not_compacted(storage):
    await fill(storage, {1: range(3), 2: range(3)})
    assert (await compact(storage, 1)).chosen == 0


async def test_copies_of_several_logs_share_one_log_and_it_is_compacted_in_its_turn(host, storage):
    await half_empty(storage)
    await fill(storage, {2: range(3)})
    await compact(storage, 1, 2)
    for index in range(2):
        await fill(storage, {3: range(5), 20 + index: range(20)})
    await compact(storage, 1, 2, 3)
    assert held(storage, 1, range(20)) == entries(1, range(10))
    await storage.collect_garbage(live(2))
    assert held(storage, 2, range(3)) == entries(2, range(3))


async def test_what_was_overwritten_is_neither_copied_nor_brought_back(storage):
    await half_empty(storage)
    await fill(storage, {1: range(3), 2: range(3)}, version=2)
    compacted = await compact(storage, 1, 2)
    assert (compacted.logs, compacted.entries) == ([0, 1], 7)
    assert held(storage, 1, range(20)) == entries(1, range(10)) | entries(1, range(3), 2)


class At:
    """Runs something once, when the compactor begins a job of this name."""

    def __init__(self, monkeypatch, storage: DbLedgerStorage, name: str, what) -> None:
        self.ran = False
        offload = storage._compactor._offload
        parent = self

        class Offload:
            async def run(self, job, *, name_=name, name: str = ""):
                if name == name_ and not parent.ran:
                    parent.ran = True
                    await what()
                return await offload.run(job, name=name)

        monkeypatch.setattr(storage._compactor, "_offload", Offload())


@pytest.mark.parametrize("step", ["compaction read", "compaction write", "compaction sync"])
async def test_an_entry_that_is_written_anew_during_a_compaction_keeps_its_new_version(monkeypatch, storage, step):
    await half_empty(storage)
    await fill(storage, {2: range(3)})

    async def rewrite() -> None:
        await fill(storage, {1: [3, 4]}, version=7)

    at = At(monkeypatch, storage, step, rewrite)
    assert (await compact(storage, 1, 2)).logs == [0, 1]
    assert at.ran
    assert held(storage, 1, range(20)) == entries(1, range(10)) | entries(1, range(3, 5), 7)


@pytest.mark.parametrize("step", ["compaction read", "compaction write", "compaction sync"])
async def test_a_ledger_that_is_deleted_during_a_compaction_does_not_come_back(monkeypatch, storage, step):
    await half_empty(storage)
    await fill(storage, {2: range(3)})
    at = At(monkeypatch, storage, step, lambda: storage.delete_ledger(1))
    assert (await compact(storage, 1, 2)).logs == [0, 1]
    assert at.ran
    refuses(NoLedgerError, lambda: storage.reader.read_entry(1, 0))
    assert storage._locations.last_entry_id(1) == -1


async def test_an_id_that_is_used_again_during_a_compaction_has_the_entries_of_its_new_life(monkeypatch, storage):
    await half_empty(storage)
    await fill(storage, {2: range(3)})

    async def again() -> None:
        await storage.delete_ledger(1)
        await fill(storage, {1: range(2, 4)}, version=9)

    assert At(monkeypatch, storage, "compaction sync", again)
    assert (await compact(storage, 1, 2)).logs == [0, 1]
    assert held(storage, 1, range(20)) == entries(1, range(2, 4), 9)
    assert (await storage.collect_garbage(live(1, 2))).ledgers == ()
    assert held(storage, 1, range(20)) == entries(1, range(2, 4), 9)


async def test_a_flush_during_a_compaction_does_not_wait_for_it(monkeypatch, storage):
    await half_empty(storage)
    await fill(storage, {2: range(3)})
    waited: list[float] = []

    async def flush() -> None:
        begun = trio.current_time()
        await fill(storage, {2: range(3, 6)})
        waited.append(trio.current_time() - begun)

    At(monkeypatch, storage, "compaction write", flush)
    await compact(storage, 1, 2)
    assert len(waited) == 1
    assert held(storage, 2, range(10)) == entries(2, range(6))


@pytest.mark.expect_error("an entry is damaged")
async def test_a_damaged_entry_keeps_its_log_and_the_others_are_moved(host, log_events, storage):
    await half_empty(storage)
    await fill(storage, {2: range(3)})
    host.disk.flip(f"{FOLDER}/0.log", 1024 + 2 * 44 + 14, 5)  # entry id of entry 2
    compacted = await compact(storage, 1, 2)
    assert compacted.logs == [1]
    assert compacted.stayed == {0: f"{DAMAGED}: 1"}
    [event] = [event for event in log_events if "damaged" in event["event"]]
    assert (event["ledger"], event["entry"], event["entry_log"]) == (1, 2, "0")
    sound = entries(1, range(10))
    del sound[2]
    assert held(storage, 1, [each for each in range(20) if each != 2]) == sound
    assert storage._locations.get(1, 2) >> 32 == 0, "its row is left as it was"
    assert (await compact(storage, 1, 2)).stayed == {0: DAMAGED}
    assert "0.log" in logs_of(host)
    await storage.collect_garbage(live(2))
    assert "0.log" not in logs_of(host), "a deleted ledger needs no copy"


async def test_damage_that_no_row_leads_to_does_not_stop_a_compaction(host, storage):
    await half_empty(storage)
    await fill(storage, {2: range(3)})
    host.disk.flip(f"{FOLDER}/0.log", 1024 + 6 * 44 + 14, 5)  # entry id of an entry of the deleted ledger
    assert (await compact(storage, 1, 2)).logs == [0, 1]
    assert held(storage, 1, range(20)) == entries(1, range(10))


async def test_a_compaction_ends_when_its_time_is_over_and_what_was_copied_counts(host, monkeypatch):
    monkeypatch.setattr("bookie.db_ledger_storage.compaction.copying.READ_BYTES", 44)
    storage = await open_storage(host.world(), options(rate=1))
    await half_empty(storage)
    await fill(storage, {2: range(3)})
    await storage.collect_garbage(live(1, 2))
    compacted = await storage.compact(CompactionKind.MINOR, 0.9, max_s=3)
    assert compacted.logs == []
    assert set(compacted.stayed) == {0, 1}
    assert held(storage, 1, range(20)) == entries(1, range(10))
    entries_done = compacted.entries
    assert entries_done > 0
    assert (await storage.compact(CompactionKind.MINOR, 0.9)).entries + entries_done == 10
    assert logs_of(host) == ["2.log", "3.log"]


async def test_a_compaction_can_be_suspended(storage):
    await half_empty(storage)
    await fill(storage, {2: range(3)})
    await storage.collect_garbage(live(1, 2))
    compacted = await storage.compact(CompactionKind.MINOR, 0.9, goes_on=lambda: False)
    assert (compacted.logs, set(compacted.stayed)) == ([], {0, 1})


@pytest.mark.parametrize(("by_bytes", "rate"), [(False, 5), (True, 5 * 44)])
async def test_copies_are_made_at_the_given_rate(host, by_bytes, rate):
    storage = await open_storage(host.world(), options(rate=rate, by_bytes=by_bytes))
    await half_empty(storage, logs=4)
    await fill(storage, {2: range(3)})
    await storage.collect_garbage(live(1, 2))
    begun = trio.current_time()
    assert (await storage.compact(CompactionKind.MAJOR, 0.9)).entries == 20
    assert 3 <= trio.current_time() - begun < 5


async def test_a_reader_whose_row_is_older_than_a_compaction_asks_the_index_again(monkeypatch, storage):
    await half_empty(storage)
    await fill(storage, {2: range(3)})
    stale = {each: storage._locations.get(1, each) for each in range(10)}
    await compact(storage, 1, 2)
    get, locations = storage._locations.get, storage._locations.locations
    asked: list[int] = []

    def old_first(ledger_id, first, stop, count_max, span_max, **ahead):
        asked.append(first)
        if len(asked) == 1:
            return [stale[first]]
        return locations(ledger_id, first, stop, count_max, span_max, **ahead)

    monkeypatch.setattr(storage._locations, "get", lambda ledger, each: stale[each] if not asked else get(ledger, each))
    monkeypatch.setattr(storage._locations, "locations", old_first)
    assert bytes(storage.reader.read_entry(1, 7)) == entry_of(1, 7)
    assert asked == [7, 7]


@pytest.mark.parametrize("whole", [False, True])
async def test_copies_are_synced_in_small_pieces(host, monkeypatch, whole):
    storage = await open_storage(host.world(), options(sync_every=3 * 44, whole=whole))
    await half_empty(storage, logs=3)
    await fill(storage, {2: range(3)})
    await storage.collect_garbage(live(1, 2))
    unsynced, most = 0, 0

    def write(self, parts, offset, write=SimFile.pwritev):
        nonlocal unsynced, most
        if self._path.rpartition("/")[0] == FOLDER and offset >= HEADER_LENGTH:
            unsynced += sum(map(len, parts))
            most = max(most, unsynced)
        return write(self, parts, offset)

    def sync(self, sync=SimFile.sync):
        nonlocal unsynced
        if self._path.rpartition("/")[0] == FOLDER:
            unsynced = 0
        sync(self)

    monkeypatch.setattr(SimFile, "pwritev", write)
    monkeypatch.setattr(SimFile, "sync", sync)
    monkeypatch.setattr(copying, "READ_ENTRIES", 1)
    assert (await storage.compact(CompactionKind.MAJOR, 0.9)).entries == 15
    assert most == 3 * 44


async def test_a_copy_that_cannot_be_synced_changes_no_row(host, log_events, storage):
    await half_empty(storage)
    await fill(storage, {2: range(3)})
    await storage.collect_garbage(live(1, 2))
    rows = {each: storage._locations.get(1, each) for each in range(10)}

    async def fail() -> None:
        host.disk.failing_syncs = 1

    monkeypatch = pytest.MonkeyPatch()
    with monkeypatch.context():
        At(monkeypatch, storage, "compaction sync", fail)
        compacted = await storage.compact(CompactionKind.MAJOR, 0.9)
    assert 0 in compacted.stayed
    assert {each: storage._locations.get(1, each) for each in range(5)} == {each: rows[each] for each in range(5)}
    assert held(storage, 1, range(20)) == entries(1, range(10))
    assert "0.log" in logs_of(host)


async def test_a_read_that_fails_keeps_the_log_and_the_next_compaction_moves_its_entries(host, log_events, storage):
    await half_empty(storage)
    await fill(storage, {2: range(3)})
    await storage.collect_garbage(live(1, 2))
    host.disk.fail_reads()
    compacted = await storage.compact(CompactionKind.MAJOR, 0.9)
    assert "Input/output error" in compacted.stayed[0]
    assert "0.log" in logs_of(host), "an error is no proof that nothing is there"
    assert held(storage, 1, range(20)) == entries(1, range(10))
    compacted = await storage.compact(CompactionKind.MAJOR, 0.9)
    assert compacted.stayed == {}
    assert "0.log" not in logs_of(host)
    assert held(storage, 1, range(20)) == entries(1, range(10))


async def test_an_unproven_log_is_not_deleted_while_any_row_leads_into_it(host, storage, monkeypatch):
    """Its ledgers map may lack a ledger: the original's has no checksum."""
    await half_empty(storage)
    await fill(storage, {2: range(3)})
    storage._locations.log_ledgers.drop(list(storage._locations.log_ledgers.logs()))
    host.disk.flip(f"{FOLDER}/0.log", 1017, 0)
    batch = storage._locations._rows.batch()  # ledger 3 has a row into log 0 that the map does not list
    batch.put((3).to_bytes(8, "big") + (0).to_bytes(8, "big"), (1028).to_bytes(8, "big"))
    storage._locations._rows.write(batch, sync=True)
    storage.set_master_key(3, b"k")
    compacted = await compact(storage, 1, 2, 3)
    assert compacted.stayed == {0: "rows of the location index still point into it"}
    assert "0.log" in logs_of(host)


async def test_rows_are_moved_in_portions_between_which_a_flush_may_come(monkeypatch, storage):
    monkeypatch.setattr(compactor, "MOVED_TOGETHER", 2)
    await half_empty(storage)
    await fill(storage, {2: range(3)})
    assert (await compact(storage, 1, 2)).logs == [0, 1]
    assert held(storage, 1, range(20)) == entries(1, range(10))
    storage.add(run_of(1, [20]))

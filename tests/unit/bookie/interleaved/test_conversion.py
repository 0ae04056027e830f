"""Conversion of index files to DbLedgerStorage and back: bookie/interleaved/to_db.py, from_db.py, regenerate.py."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bookie.db_ledger_storage.entry_log import EntryLogs
from bookie.db_ledger_storage.ledger_index import LedgerRow
from bookie.db_ledger_storage.location_index import LocationIndex
from bookie.errors import StorageDamagedError
from bookie.interleaved.index_file import IndexHeader, index_path
from bookie.interleaved.index_files import FoundIndex, find_index_files, open_index, sync_folders, write_index
from bookie.interleaved.regenerate import regenerate
from bookie.interleaved.to_db import convert_to_db
from quire.wire.bookkeeper.run import Run
from quire.world.doors import World
from simulation import Universe
from simulation.machines.power import PowerCut
from tests.unit.bookie.build import entry

LAC = bytes(8) + (1).to_bytes(8, "big") + b"sum!"
LEDGERS = {
    4: IndexHeader(master_key=b"key of 4"),
    7: IndexHeader(master_key=b"key of 7", fenced=True),
    0x1F01: IndexHeader(master_key=b"k", explicit_lac=LAC),
}
COUNT = 5


def current(number: int = 1) -> str:
    return f"/d{number}/current"


def written(world: World, folders: Sequence[str]) -> None:
    """Write what a bookie of the original leaves: log N in folder N, index files anywhere."""
    for number, folder in enumerate(folders):
        world.disk.make_dirs(folder)
        logs = EntryLogs(world.disk, folder)
        logs.open()
        logs._next_id = number  # the original's logs have one sequence of ids for all folders
        runs = [Run.of(ledger_id, [(e, entry(ledger_id, e))]) for e in range(COUNT) for ledger_id in LEDGERS]
        placed = [(run, location + 4) for run, location in logs.append(runs)]
        logs.close()
        for ledger_id in list(LEDGERS)[number :: len(folders)]:
            entries = [(run.first, location) for run, location in placed if run.ledger_id == ledger_id]
            write_index(world.disk, FoundIndex(ledger_id, folder), LEDGERS[ledger_id], iter([entries]))
        sync_folders(world.disk, folder)


def facts(header: IndexHeader) -> LedgerRow:
    return LedgerRow(master_key=header.master_key, fenced=header.fenced, explicit_lac=header.explicit_lac)


def check(world: World, folders: Sequence[str]) -> None:
    """Check that each ledger is in its folder with its facts, and every entry where its row says."""
    assert list(find_index_files(world.disk, folders)) == []
    for ledger_id, header in LEDGERS.items():
        folder = folders[ledger_id % len(folders)]
        rows = world.key_value.open(f"{folder}/ledgers", create=False)
        value = rows.get(ledger_id.to_bytes(8, "big"))
        rows.close()
        assert value is not None
        assert LedgerRow.decode(value) == facts(header)
        rows = world.key_value.open(f"{folder}/locations", create=False)
        for entry_id in range(COUNT):
            location = LocationIndex(rows).get(ledger_id, entry_id)
            file = world.disk.open(f"{folder}/{location >> 32:x}.log", writable=False)
            expected = entry(ledger_id, entry_id)
            assert file.pread(len(expected), location & 0xFFFFFFFF) == expected
        assert LocationIndex(rows).get(ledger_id, COUNT) == 0
        rows.close()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_ledger_and_entry_is_found_in_its_folder(count: int) -> None:
    world = Universe(1).host("host").world()
    folders = [current(number) for number in range(count)]
    written(world, folders)
    found = convert_to_db(world.disk, world.key_value, folders, folders)
    check(world, folders)
    assert (found.ledgers, found.entries, found.missing, found.unfinished) == (3, 3 * COUNT, 0, [])
    assert (found.copied == 0) == (count == 1)


def test_a_ledger_that_an_index_has_already_is_converted_to_its_folder() -> None:
    """A folder was added after a conversion that did not come to its end: the ledger stays where it was."""
    world = Universe(1).host("host").world()
    folders = [current(0), current(1)]
    written(world, folders)
    moved = next(ledger_id for ledger_id in LEDGERS if ledger_id % 2)
    rows = world.key_value.open(f"{folders[0]}/ledgers")
    batch = rows.batch()
    batch.put(moved.to_bytes(8, "big"), facts(LEDGERS[moved]).encode())
    rows.write(batch, sync=True)
    rows.close()
    convert_to_db(world.disk, world.key_value, folders, folders)
    places = []
    for number, folder in enumerate(folders):
        for name in ("ledgers", "locations"):
            opened = world.key_value.open(f"{folder}/{name}", create=False)
            found = {int.from_bytes(key[:8], "big") for key, _ in opened.scan(bytes(8), b"\x80")}
            opened.close()
            places += [(number, name)] if moved in found else []
    assert places == [(0, "ledgers"), (0, "locations")]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_a_crash_at_any_step_of_a_conversion_loses_nothing(count: int, seed: int) -> None:
    folders = [current(number) for number in range(count)]
    for changes in range(500):
        host = Universe(seed).host("host")
        world = host.world()
        written(world, folders)
        host.crash_after(changes)
        try:
            convert_to_db(world.disk, world.key_value, folders, folders)
        except PowerCut:
            again = host.world()
            convert_to_db(again.disk, again.key_value, folders, folders)
            check(again, folders)
            continue
        assert changes > 15, "it has that many steps"
        return
    raise AssertionError("the conversion never came to its end")


def test_a_damaged_index_file_stops_it_before_anything_is_deleted() -> None:
    world = Universe(1).host("host").world()
    written(world, [current()])
    path = f"{current()}/{index_path(7)}"
    file = world.disk.open(path)
    file.pwrite(b"XXXX", 0)
    file.close()
    with pytest.raises(StorageDamagedError, match=r"7\.idx"):
        convert_to_db(world.disk, world.key_value, [current()], [current()])
    assert len(list(find_index_files(world.disk, [current()]))) == len(LEDGERS)
    found = regenerate(world.disk, [current()], [current()], [7, 99], b"key of 7")
    assert {ledger_id: len(entries) for ledger_id, entries in found.entries.items()} == {7: COUNT, 99: 0}
    convert_to_db(world.disk, world.key_value, [current()], [current()])
    check(world, [current()])


def test_a_dry_run_writes_no_index_file() -> None:
    world = Universe(1).host("host").world()
    written(world, [current()])
    before = world.disk.read(f"{current()}/{index_path(7)}")
    regenerate(world.disk, [current()], [current()], [7], b"other", dry_run=True)
    assert world.disk.read(f"{current()}/{index_path(7)}") == before


def test_a_file_that_was_never_finished_is_named_and_does_not_stop_it() -> None:
    world = Universe(1).host("host").world()
    written(world, [current()])
    world.disk.make_dirs(f"{current()}/0/9")
    world.disk.write_atomic(f"{current()}/0/9/9.idx", b"")
    found = convert_to_db(world.disk, world.key_value, [current()], [current()])
    assert found.unfinished == [f"{current()}/0/9/9.idx"]
    check(world, [current()])


def test_a_row_that_leads_to_its_entry_is_kept_and_any_other_is_replaced() -> None:
    """The original deletes each index file as it goes, and its bookie may have compacted logs since."""
    world = Universe(1).host("host").world()
    written(world, [current()])
    first = FoundIndex(4, current())
    locations = dict(each for part in open_index(world.disk, first).locations() for each in part)
    logs = EntryLogs(world.disk, current())
    logs.open()
    [(_, moved)] = logs.append([Run.of(4, [(0, entry(4, 0))])])
    logs.close()
    maps = world.key_value.open(f"{current()}/locations")
    batch = maps.batch()
    batch.put((4).to_bytes(8, "big") + bytes(8), (moved + 4).to_bytes(8, "big"))
    batch.put((4).to_bytes(8, "big") + (1).to_bytes(8, "big"), (9 << 32 | 5000).to_bytes(8, "big"))
    maps.write(batch, sync=True)
    maps.close()
    rows = world.key_value.open(f"{current()}/ledgers")
    batch = rows.batch()
    batch.put((4).to_bytes(8, "big"), LedgerRow(master_key=b"key of 4").encode())
    rows.write(batch, sync=True)
    rows.close()
    convert_to_db(world.disk, world.key_value, [current()], [current()])
    check(world, [current()])
    maps = world.key_value.open(f"{current()}/locations", create=False)
    assert LocationIndex(maps).get(4, 0) == moved + 4
    assert LocationIndex(maps).get(4, 1) == locations[1]

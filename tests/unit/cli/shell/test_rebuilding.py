"""Rebuilding the indexes of a stopped bookie, on folders that Apache BookKeeper 4.17.3 wrote (bookie/rebuild)."""

from __future__ import annotations

import re
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from bookie.db_ledger_storage.ledger_index import LedgerRow
from bookie.db_ledger_storage.log_contents import read_ledgers_map
from bookie.db_ledger_storage.log_ledgers import LogLedgers
from bookie.rebuild.ledgers import rebuild_ledgers
from bookie.rebuild.locations import rebuild_locations
from quire.world.real import real_world
from quire.world.real_look import look_into
from tests.support.killing import Killed, killable
from tests.unit.cli.shell.offline_rig import CURRENT, folders, rows, shell

__all__ = ["folders"]
pytestmark = pytest.mark.usefixtures("bookie_folders")


def test_a_rebuilt_location_index_has_the_same_rows() -> None:
    before = rows("locations")
    shutil.rmtree(CURRENT / "locations")
    ran = shell("rebuild-db-ledger-locations-index")
    assert ran.code == 0
    assert rows("locations") == before
    ran = shell("rebuild-db-ledger-locations-index", "-json")
    assert rows("locations") == before
    (value,) = ran.values
    assert re.fullmatch(r".*/locations\.BACKUP-\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+0000", value["backup"])
    assert Path(value["backup"]).is_dir()
    assert (value["entries"], value["leftOut"]) == (len(before), 0)
    assert shell("localconsistencycheck").code == 0


def test_a_rebuilt_location_index_has_notes_of_each_log() -> None:
    """The garbage collection finds what points into a log without a look at all rows."""
    lose_ledger(2)
    assert shell("rebuild-db-ledger-locations-index").code == 0
    expected: dict[int, set[int]] = {0: set(), 1: set(), 2: set()}
    for key, value in rows("locations").items():
        expected[int.from_bytes(value, "big") >> 32].add(int.from_bytes(key[:8], "big"))
    found = look_into(str(CURRENT / "locations"))
    notes = LogLedgers(found)
    assert list(notes.logs()) == [0, 1, 2]
    for log_id, ledgers in expected.items():
        noted = notes.read(log_id)
        assert noted is not None
        assert ledgers <= set(noted), log_id
        assert 2 not in noted
        # A log's ledgers map has the same numbers.
        with closing(real_world().disk.open(str((CURRENT / f"{log_id}.log").absolute()), writable=False)) as file:
            mapped = read_ledgers_map(file).ledgers
        assert mapped is None or {key: size for key, size in mapped.items() if key != 2} == noted
    found.close()


def lose_ledger(ledger_id: int) -> None:
    """Delete the row of a ledger in the ledger index."""
    maps = real_world().key_value.open(str(CURRENT / "ledgers"))
    batch = maps.batch()
    batch.delete(ledger_id.to_bytes(8, "big"))
    maps.write(batch, sync=True)
    maps.close()


def test_entries_of_ledgers_without_a_row_are_left_out() -> None:
    lose_ledger(2)
    (value,) = shell("rebuild-db-ledger-locations-index", "-json").values
    assert value["leftOut"] == 6
    assert not [key for key in rows("locations") if int.from_bytes(key[:8], "big") == 2]


def test_a_damaged_sealed_log_keeps_the_old_index_unless_told() -> None:
    before = rows("locations")
    log = CURRENT / "0.log"
    data = bytearray(log.read_bytes())
    data[3187:3191] = (1 << 30).to_bytes(4, "big")
    log.write_bytes(data)
    ran = shell("rebuild-db-ledger-locations-index")
    assert ran.code == 255
    assert "0.log is damaged at offset 3187" in ran.err
    assert rows("locations") == before
    assert not [path for path in CURRENT.iterdir() if "REBUILT" in path.name or "BACKUP" in path.name]
    ran = shell("rebuild-db-ledger-locations-index", "-skipdamaged")
    assert (ran.code, "0.log: 3187" in ran.err) == (0, True)
    assert 0 < len(rows("locations")) < len(before)


def test_a_rebuild_that_is_killed_at_any_step_is_made_again() -> None:
    before = rows("locations")
    world = real_world()
    shutil.copytree(CURRENT, "made")
    for changes in range(200):
        folder = f"after-{changes}"
        shutil.copytree("made", folder)
        path = str(Path(folder).absolute())
        dying = killable(world, changes)
        killed = False
        try:
            rebuild_locations(dying.disk, dying.key_value, path, path, "now")
        except Killed:
            killed = True
            rebuild_locations(world.disk, world.key_value, path, path, "then")
        found = look_into(f"{path}/locations")
        assert dict(found.scan(bytes(8), b"\x80")) == before
        found.close()
        shutil.rmtree(folder)
        if not killed:
            assert changes > 5, "it has that many steps"
            return
    raise AssertionError("the rebuild never came to its end")


def test_a_rebuild_of_the_ledger_index_that_is_killed_at_any_step_is_made_again() -> None:
    shutil.copytree("bk1", "made")
    world = real_world()
    expected = {key[-8:]: replace(LedgerRow.decode(value), fenced=True) for key, value in rows("ledgers").items()}
    for changes in range(200):
        shutil.rmtree("bk1")
        shutil.copytree("made", "bk1")
        journal, path = str(Path("bk1/journal/current").absolute()), str(CURRENT.absolute())
        dying = killable(world, changes)
        killed = False
        try:
            rebuild_ledgers(dying.disk, dying.key_value, [journal], [(path, path)], "now")
        except Killed:
            killed = True
            kept = [each for each in Path(path).iterdir() if each.name in ("ledgers", "ledgers.PREV-now")]
            assert kept, "the old index is there at every moment"
            rebuild_ledgers(world.disk, world.key_value, [journal], [(path, path)], "then")
        again = {key: LedgerRow.decode(value) for key, value in rows("ledgers").items()}
        assert {key: row.master_key for key, row in again.items()} == {
            key: row.master_key for key, row in expected.items()
        }, changes
        assert all(row.fenced for row in again.values())
        if not killed:
            assert changes >= 3, "it writes a map, and renames two folders"
            return
    raise AssertionError("the rebuild never came to its end")


def two_folders() -> None:
    """Give the bookie a second ledger folder, with the ledgers of odd ids, as a bookie with two folders has them."""
    conf = Path("bk1.conf")
    conf.write_text(conf.read_text().replace("ledgerDirectories=bk1/ledgers", "ledgerDirectories=bk1/ledgers,bk1/more"))
    shutil.copytree("bk1/ledgers", "bk1/more")
    for folder, parity in ((CURRENT, 0), (Path("bk1/more/current"), 1)):
        for name in ("ledgers", "locations"):
            maps = real_world().key_value.open(str(folder / name))
            batch = maps.batch()
            for key, _ in list(maps.scan(bytes(8), b"\x80")):
                if int.from_bytes(key[:8], "big") % 2 != parity:
                    batch.delete(key)
            maps.write(batch, sync=True)
            maps.close()


def test_the_indexes_of_several_ledger_folders_are_rebuilt_each_by_itself() -> None:
    two_folders()
    more = Path("bk1/more/current")

    def found(folder: Path, name: str) -> dict[bytes, bytes]:
        opened = look_into(str(folder / name))
        try:
            return dict(opened.scan(bytes(8), b"\x80"))
        finally:
            opened.close()

    before = {folder: found(folder, "locations") for folder in (CURRENT, more)}
    assert all(before.values())
    ran = shell("rebuild-db-ledger-locations-index", "-json")
    assert ran.code == 0
    assert {Path(value["index"]).parent.name for value in ran.values} == {"ledgers", "more"}
    assert {folder: found(folder, "locations") for folder in (CURRENT, more)} == before
    assert shell("localconsistencycheck").code == 0
    # Ledgers of the journal go to the folder of their id; an entry log names those it has.
    for folder in (CURRENT, more):
        shutil.rmtree(folder / "ledgers")
    for log in [*CURRENT.glob("*.log"), *more.glob("*.log")]:
        log.unlink()
    assert shell("rebuild-db-ledgers-index").code == 0
    parities = [{int.from_bytes(key, "big") % 2 for key in found(folder, "ledgers")} for folder in (CURRENT, more)]
    assert parities == [{0}, {1}]


def test_a_ledger_that_stayed_when_a_folder_was_added_keeps_its_key() -> None:
    before = {key: LedgerRow.decode(value) for key, value in rows("ledgers").items()}
    conf = Path("bk1.conf")
    conf.write_text(conf.read_text().replace("ledgerDirectories=bk1/ledgers", "ledgerDirectories=bk1/ledgers,bk1/more"))
    more = Path("bk1/more/current")
    more.mkdir(parents=True)
    shutil.rmtree(CURRENT / "ledgers")
    assert shell("rebuild-db-ledgers-index").code == 0
    after = {key: LedgerRow.decode(value) for key, value in rows("ledgers").items()}
    logged = {key: row.master_key for key, row in before.items() if key in after}
    assert any(int.from_bytes(key, "big") % 2 for key in logged)
    assert {key: row.master_key for key, row in after.items()} == logged


@pytest.mark.parametrize("lost", ["locations and logs", "the old index", "nothing"])
def test_a_ledger_of_the_journal_is_rebuilt_in_the_folder_that_has_it_after_an_expansion(lost: str) -> None:
    """The journals name all ledgers. Those that stayed in the first folder must not get a second place by their ids."""
    conf = Path("bk1.conf")
    conf.write_text(conf.read_text().replace("ledgerDirectories=bk1/ledgers", "ledgerDirectories=bk1/ledgers,bk1/more"))
    more = Path("bk1/more/current")
    more.mkdir(parents=True)
    before = {int.from_bytes(key[:8], "big") for key in rows("ledgers")}
    assert any(ledger_id % 2 for ledger_id in before)
    if lost == "locations and logs":
        for log in CURRENT.glob("*.log"):
            log.unlink()
    elif lost == "the old index":
        shutil.rmtree(CURRENT / "ledgers")
    first, second = shell("rebuild-db-ledgers-index", "-json").values
    assert (Path(second["index"]).parent.name, second["ledgers"]) == ("more", 0)
    after = {int.from_bytes(key[:8], "big") for key in rows("ledgers")}
    assert first["ledgers"] == len(after) > 0
    assert after <= before
    found = look_into(str(more / "ledgers"))
    assert dict(found.scan(bytes(8), b"\x80")) == {}
    found.close()


def test_a_rebuild_that_one_of_several_folders_stops_says_what_was_done() -> None:
    two_folders()
    more = Path("bk1/more/current")
    log = more / "0.log"
    data = bytearray(log.read_bytes())
    data[3187:3191] = (1 << 30).to_bytes(4, "big")
    log.write_bytes(data)
    ran = shell("rebuild-db-ledger-locations-index")
    assert ran.code == 255
    assert f"Nothing was changed in {more}" in ran.err
    assert [path.name for path in CURRENT.iterdir() if "BACKUP" in path.name], "the first folder is done"
    assert not [path.name for path in more.iterdir() if "BACKUP" in path.name or "REBUILT" in path.name]


def test_a_rebuilt_ledger_index_has_every_ledger_fenced_with_its_key() -> None:
    before = {key: LedgerRow.decode(value) for key, value in rows("ledgers").items()}
    for _ in range(2):
        ran = shell("rebuild-db-ledgers-index")
        assert ran.code == 0
        after = {key: LedgerRow.decode(value) for key, value in rows("ledgers").items()}
        for key, row in after.items():
            assert row.fenced
            assert (row.master_key, row.explicit_lac) == (before[key].master_key, before[key].explicit_lac)
    # Without the old index the keys come from the journals.
    shutil.rmtree(CURRENT / "ledgers")
    ran = shell("rebuild-db-ledgers-index", "-v")
    assert "Found ledger 2 in journal" in ran.out
    again = {key: LedgerRow.decode(value) for key, value in rows("ledgers").items()}
    assert {key: row.master_key for key, row in again.items()} == {key: row.master_key for key, row in after.items()}


def test_a_ledger_index_is_checked_and_its_damaged_row_is_named() -> None:
    ran = shell("check-db-ledgers-index", "-v")
    assert ran.code == 0
    assert (
        "Scanned: 1, ledger: 0, exists: true, isFenced: false, masterKey: YV7QCJ86LbHB9xgpEO3ARCg5bQk=, "
        "explicitLAC: -" in ran.out
    )
    assert ran.out.splitlines()[-1] == "-- Done checking DBStorage ledgers index --"
    maps = real_world().key_value.open(str(CURRENT / "ledgers"))
    batch = maps.batch()
    batch.put((2).to_bytes(8, "big"), b"\xff")
    maps.write(batch, sync=True)
    maps.close()
    ran = shell("check-db-ledgers-index")
    assert ran.code == 255
    assert "ledger 2: a row of the ledger index is no LedgerData" in ran.err

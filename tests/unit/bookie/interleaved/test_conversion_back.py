"""Conversion of DbLedgerStorage to index files, killed at every step: bookie/interleaved/from_db.py."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bookie.db_ledger_storage.ledger_index import LedgerRow
from bookie.interleaved.from_db import NotConvertibleError, convert_from_db
from bookie.interleaved.index_file import IndexHeader
from bookie.interleaved.index_files import find_index_files, open_index
from quire.world.doors import World
from quire.world.real import real_world
from tests.support.killing import Killed, killable

LAC = bytes(8) + (1).to_bytes(8, "big") + b"sum!"
LEDGERS = {3: LedgerRow(master_key=b"k", fenced=True), 300: LedgerRow(master_key=b"l", explicit_lac=LAC)}
ENTRIES = [(0, 1028), (1, 1100), (7, 1 << 33 | 1028)]


def make_maps(world: World, index: str, rows: dict[int, LedgerRow]) -> None:
    ledgers, locations = (world.key_value.open(f"{index}/{name}") for name in ("ledgers", "locations"))
    batch = ledgers.batch()
    for ledger_id, row in rows.items():
        batch.put(ledger_id.to_bytes(8, "big"), row.encode())
    ledgers.write(batch, sync=True)
    batch = locations.batch()
    for ledger_id in rows:
        for entry_id, location in ENTRIES:
            batch.put(ledger_id.to_bytes(8, "big") + entry_id.to_bytes(8, "big"), location.to_bytes(8, "big"))
    locations.write(batch, sync=True)
    ledgers.close()
    locations.close()


def check(world: World, index: str) -> None:
    assert {"ledgers.backup", "locations.backup"} <= set(world.disk.names(index))
    assert not {"ledgers", "locations"} & set(world.disk.names(index))
    found = list(find_index_files(world.disk, [index]))
    assert {each.ledger_id for each in found} == LEDGERS.keys()
    for each in found:
        row = LEDGERS[each.ledger_id]
        opened = open_index(world.disk, each)
        header = IndexHeader(master_key=row.master_key, fenced=row.fenced, explicit_lac=row.explicit_lac)
        assert opened.header == header
        assert [pair for part in opened.locations() for pair in part] == ENTRIES
        opened.file.close()


def test_a_kill_at_any_step_loses_nothing_and_the_next_call_finishes(tmp_path: Path) -> None:
    world = real_world()
    made = tmp_path / "made"
    make_maps(world, str(made), LEDGERS)
    for changes in range(200):
        index = str(tmp_path / f"after-{changes}")
        shutil.copytree(made, index)
        dying = killable(world, changes)
        try:
            convert_from_db(dying.disk, dying.key_value, index)
        except Killed:
            convert_from_db(world.disk, world.key_value, index)
            check(world, index)
            continue
        check(world, index)
        assert changes > 10, "it has that many steps"
        return
    raise AssertionError("the conversion never came to its end")


@pytest.mark.parametrize("name", ["ledgers.backup", "locations.backup"])
def test_the_backup_of_an_earlier_conversion_is_not_overwritten(name: str, tmp_path: Path) -> None:
    world = real_world()
    make_maps(world, str(tmp_path), LEDGERS)
    (tmp_path / name).mkdir()
    with pytest.raises(NotConvertibleError, match=f"{name}.*delete or move"):
        convert_from_db(world.disk, world.key_value, str(tmp_path))
    assert list(find_index_files(world.disk, [str(tmp_path)])) == []


def test_a_ledger_in_limbo_cannot_be_converted(tmp_path: Path) -> None:
    world = real_world()
    make_maps(world, str(tmp_path), LEDGERS | {5: LedgerRow(limbo=True)})
    with pytest.raises(NotConvertibleError, match="ledger 5 and 0 others are in limbo"):
        convert_from_db(world.disk, world.key_value, str(tmp_path))


def test_folders_of_another_storage_are_refused(tmp_path: Path) -> None:
    world = real_world()
    with pytest.raises(NotConvertibleError, match="not that of DbLedgerStorage"):
        convert_from_db(world.disk, world.key_value, str(tmp_path))

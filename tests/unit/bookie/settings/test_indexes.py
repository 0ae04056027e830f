"""bookie/settings/indexes.py and rocksdb_file.py: what RocksDB says that it was opened with, and files it makes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bookie.config import BookieConfig
from bookie.db_ledger_storage.options import StorageOptions
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.errors import IndexOptionsError
from bookie.settings.rocksdb_file import OptionsFileError, read_options
from quire.world.map_tuning import Setting
from quire.world.real import real_world
from tests.support.refusals import raises, refuses
from tests.unit.bookie.build import CONFIG, run_of

pytestmark = pytest.mark.real_clock

SHIPPED = """
[DBOptions]
 # a comment
 create_if_missing=true
 info_log_level=INFO_LEVEL
 keep_log_file_num=30
 max_background_jobs=3
 max_open_files=-1
[CFOptions "default"]
 compression=kLZ4Compression
 write_buffer_size=67108864
 num_levels=6
 level0_file_num_compaction_trigger=5
[TableOptions/BlockBasedTable "default"]
 block_size=65536
 block_cache=33554432
 format_version=2
 checksum=kCRC32c
 filter_policy=rocksdb.BloomFilter:12:false
 level_compaction_dynamic_level_bytes=true
"""


async def opened_with(folder: Path, config: BookieConfig) -> dict[str, dict[str, str]]:
    """Open a storage and write a little; return the options that RocksDB noted, by index."""
    options = StorageOptions(index_keys=config)
    storage = DbLedgerStorage(real_world(), str(folder), options)
    await storage.open()
    storage.set_master_key(7, b"key")
    storage.add(run_of(7, 0, 3))
    await storage.flush()
    await storage.close()
    found = {}
    for index in ("locations", "ledgers"):
        newest = max((folder / "current" / index).glob("OPTIONS-*"), key=lambda path: int(path.name.partition("-")[2]))
        found[index] = dict(re.findall(r"^\s*(\w+)=(.*)$", newest.read_text(), re.MULTILINE))
    return found


@pytest.mark.parametrize(
    ("key", "value", "option", "expected"),
    [
        ("rocksdb_write_buffer_mb", 3, "write_buffer_size", str(3 << 20)),
        ("rocksdb_table_mb", 5, "target_file_size_base", str(5 << 20)),
        ("rocksdb_block_bytes", 4096, "block_size", "4096"),
        ("rocksdb_bloom_bits", 0, "filter_policy", "nullptr"),
        ("rocksdb_levels", 5, "num_levels", "5"),
        ("rocksdb_level0_files", 3, "level0_file_num_compaction_trigger", "3"),
        ("rocksdb_level1_mb", 7, "max_bytes_for_level_base", str(7 << 20)),
        ("rocksdb_lz4", False, "compression_per_level", "kNoCompression:kNoCompression"),
        ("rocksdb_format", 4, "format_version", "4"),
        ("rocksdb_checksum", "kCRC32c", "checksum", "kCRC32c"),
    ],
)
async def test_an_index_is_opened_with_the_value_of_its_key(
    key: str, value: Any, option: str, expected: str, tmp_path: Path
) -> None:
    usual = await opened_with(tmp_path / "usual", CONFIG)
    assert usual["locations"][option] != expected
    found = await opened_with(tmp_path / "changed", replace(CONFIG, **{key: value}))
    assert found["locations"][option] == expected
    of_ledgers = key in ("rocksdb_format", "rocksdb_checksum")
    assert (found["ledgers"][option] == expected) is of_ledgers or usual["ledgers"][option] == found["ledgers"][option]


async def test_the_logs_of_rocksdb_are_where_their_key_says(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    await opened_with(tmp_path / "bookie", replace(CONFIG, rocksdb_log_path=str(logs)))
    assert sorted(path.name for path in logs.iterdir()) == ["ledgers", "locations"]
    assert all(list((logs / index).iterdir()) for index in ("ledgers", "locations"))
    assert not (tmp_path / "bookie/current/locations/LOG").exists()


async def test_an_options_file_counts_instead_of_the_keys(tmp_path: Path) -> None:
    path = tmp_path / "entry_location_rocksdb.conf"
    path.write_text(SHIPPED)
    keys = replace(CONFIG, locations_options_file=str(path), rocksdb_levels=4, rocksdb_table_mb=5)
    found = await opened_with(tmp_path / "bookie", keys)
    wanted = {
        "max_background_jobs": "3",
        "num_levels": "6",
        "level0_file_num_compaction_trigger": "5",
        "block_size": "65536",
        "format_version": "2",
        "checksum": "kCRC32c",
        "target_file_size_base": str(64 << 20),
        "write_buffer_size": str(64 << 20),
    }
    assert {name: found["locations"][name] for name in wanted} == wanted
    assert found["ledgers"]["num_levels"] != "6"
    both = await opened_with(tmp_path / "other", replace(keys, ledgers_options_file=str(path)))
    assert both["ledgers"]["num_levels"] == "6"


async def test_without_the_file_that_is_named_the_keys_count(tmp_path: Path) -> None:
    keys = replace(CONFIG, locations_options_file=str(tmp_path / "none.conf"), rocksdb_levels=4)
    assert (await opened_with(tmp_path / "bookie", keys))["locations"]["num_levels"] == "4"


async def test_a_file_that_cannot_be_obeyed_is_refused_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "its.conf"
    path.write_text("[DBOptions]\n\n  wal_dir=/elsewhere\n")
    keys = replace(CONFIG, locations_options_file=str(path))
    await raises(IndexOptionsError, opened_with(tmp_path / "bookie", keys), "its.conf: line 3: wal_dir=/elsewhere")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[DBOptions]\nmax_background_jobs=many", "line 2: max_background_jobs=many is no whole number"),
        ("[DBOptions]\ninfo_log_level=DEBUG_LEVEL", "info_log_level=DEBUG_LEVEL cannot be set here; remove it"),
        ("[DBOptions]\nuse_fsync=yes", "use_fsync=yes cannot be set"),
        ('[CFOptions "other"]\nnum_levels=3', "one column family, default"),
        ("[Others]\na=1", "there is no section"),
        ("[DBOptions", "is no section"),
        ("a=1", "is no option of a section"),
        ("[TableOptions/BlockBasedTable]\nchecksum=kNone", "checksum=kNone cannot be set"),
    ],
)
def test_a_line_that_cannot_be_obeyed_is_named(text: str, says: str) -> None:
    refuses(OptionsFileError, lambda: read_options(text), says)


def test_the_settings_of_a_file_are_read_with_their_places() -> None:
    text = "[Version]\nrocksdb_version=7.9\n" + SHIPPED
    settings = read_options(text)
    assert settings[0] == Setting("map", "keep_log_file_num", 30)
    assert Setting("table", "filter_policy", 12) in settings
    assert Setting("map", "level_compaction_dynamic_level_bytes", True) in settings
    assert not {"create_if_missing", "max_open_files", "rocksdb_version"} & {each.name for each in settings}

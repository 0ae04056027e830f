"""Option files of RocksDB, as BookKeeper's entryLocationRocksdbConf and ledgerMetadataRocksdbConf name them (pure).

    [DBOptions]                                  max_background_jobs=2
    [CFOptions "default"]                        write_buffer_size=67108864
    [TableOptions/BlockBasedTable "default"]     block_size=65536

With such a file none of the keys dbStorage_rocksDB_* counts but the log's path. An option that cannot be set here is
refused, unless it has the value that it has here anyway. Source: BookKeeper's KeyValueStorageRocksDB, its
conf/entry_location_rocksdb.conf, and RocksDB's options_file_example.ini.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from quire.world.map_tuning import CHECKSUMS, COMPRESSIONS, Place, Setting

FILE_SIZE_MAX: Final = 1 << 20
_SECTION: Final = re.compile(r'\[(\w+)(/\w+)?(?: "([^"]*)")?\]')
_PLACES: Final[Mapping[str, Place]] = {"DBOptions": "map", "CFOptions": "map", "TableOptions": "table"}
_NUMBERS: Final = """
keep_log_file_num log_file_time_to_roll max_background_jobs max_subcompactions max_total_wal_size max_open_files
delete_obsolete_files_period_micros max_log_file_size bytes_per_sync wal_bytes_per_sync write_buffer_size
max_write_buffer_number min_write_buffer_number_to_merge num_levels level0_file_num_compaction_trigger
level0_slowdown_writes_trigger level0_stop_writes_trigger max_bytes_for_level_base target_file_size_base
target_file_size_multiplier max_compaction_bytes compaction_readahead_size db_write_buffer_size
manifest_preallocation_size max_manifest_file_size block_size block_cache format_version metadata_block_size
block_restart_interval
"""
"""Options that are whole numbers."""
_SWITCHES: Final = """
level_compaction_dynamic_level_bytes cache_index_and_filter_blocks partition_filters disable_auto_compactions
optimize_filters_for_hits paranoid_checks use_direct_reads use_direct_io_for_flush_and_compaction
pin_l0_filter_and_index_blocks_in_cache allow_mmap_reads allow_mmap_writes use_fsync
"""
"""Options that are true or false."""
_HERE_ANYWAY: Final[Mapping[str, str]] = {
    "create_if_missing": "true",
    "info_log_level": "INFO_LEVEL",
    "comparator": "leveldb.BytewiseComparator",
    "merge_operator": "nullptr",
    "compaction_style": "kCompactionStyleLevel",
}
_TABLE_OPTIONS_ELSEWHERE: Final = frozenset(("level_compaction_dynamic_level_bytes", "log_file_time_to_roll"))
"""Options that the original's own files have in the section of another place."""


class OptionsFileError(ValueError):
    """The file cannot be obeyed; the text says the line and the remedy."""


def read_options(text: str) -> tuple[Setting, ...]:
    """Return the settings in the text of an options file. OptionsFileError."""
    return tuple(_settings(text))


def _settings(text: str) -> Iterator[Setting]:
    place: Place | None = None
    skipped = False
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        if line.startswith("["):
            section = _SECTION.fullmatch(line)
            if section is None:
                raise OptionsFileError(f"line {number}: {line} is no section")
            skipped = section[1] == "Version"
            place = _PLACES.get(section[1])
            if place is None and not skipped:
                raise OptionsFileError(f"line {number}: there is no section {line}")
            if section[3] not in (None, "default"):
                raise OptionsFileError(f"line {number}: an index has one column family, default; remove {line}")
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        if skipped:
            continue
        if not equals or place is None:
            raise OptionsFileError(f"line {number}: {line} is no option of a section")
        made = _setting("map" if name in _TABLE_OPTIONS_ELSEWHERE else place, name, value, number)
        if made is not None:
            yield made


def _setting(place: Place, name: str, value: str, number: int) -> Setting | None:
    """Return the setting of one line; None if it is as here anyway."""
    if _HERE_ANYWAY.get(name) == value or (name, value) == ("max_open_files", "-1"):
        return None
    if name in _NUMBERS.split():
        try:
            return Setting(place, name, int(value))
        except ValueError:
            raise OptionsFileError(f"line {number}: {name}={value} is no whole number") from None
    if name in _SWITCHES.split() and value in ("true", "false"):
        return Setting(place, name, value == "true")
    if name == "compression" and value in COMPRESSIONS:
        return Setting("map", name, value)
    if name == "checksum" and value in CHECKSUMS:
        return Setting("table", name, value)
    if name == "filter_policy" and (bits := re.fullmatch(r"(?:rocksdb\.B|b)loom(?:F|f)ilter:(\d+)(?::\w+)?", value)):
        return Setting("table", name, int(bits[1]))
    raise OptionsFileError(f"line {number}: {name}={value} cannot be set here; remove it")

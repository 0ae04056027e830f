"""Options of RocksDB, made from the tuning of a map. rocksdict is passed in: it is imported late."""

from __future__ import annotations

import os
import resource
from typing import Any

from quire.world.map_tuning import CHECKSUMS, COMPRESSIONS, MapTuning, Setting


def rocksdb_options(
    rocksdict: Any, path: str, *, create: bool, cache_bytes: int, write_buffer_bytes: int, tuning: MapTuning
) -> Any:
    """Return options for little memory use that the Java bookie can read: raw bytes, bytewise order, default column
    family.

    A map uses memory for its writes, up to three write buffers besides `cache_bytes`; a small one stays small. RocksDB
    opens a folder whatever options it was written with, so the original's options do not matter.
    """
    cache_bytes = _value_of(tuning, "block_cache", cache_bytes)
    table = rocksdict.BlockBasedOptions()
    table.set_block_cache(rocksdict.Cache(cache_bytes))
    table.set_block_size(tuning.block_size)
    table.set_format_version(tuning.format_version)
    table.set_checksum_type(_checksum(rocksdict, tuning.checksum))
    if tuning.bloom_bits:
        table.set_bloom_filter(tuning.bloom_bits, False)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    # In one piece, index and filter of a large file do not fit into a shard of a small cache: each get would read them
    # again.
    table.set_index_type(rocksdict.BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_metadata_block_size(4 << 10)
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(create)
    # Keys that are read nearly always exist: without a filter the last level, which is searched last, is cheaper to
    # write and to read.
    options.set_optimize_filters_for_hits(True)
    # A flushed file is soon merged; until then, a get need not unpack a block.
    kinds = rocksdict.DBCompressionType
    options.set_compression_per_level([kinds.none(), kinds.lz4() if tuning.lz4 else kinds.none()])
    # Merging more of them at once rewrites the last level less often: 0.2 us a row instead of 0.5 (with 4).
    options.set_level_zero_file_num_compaction_trigger(tuning.level0_files)
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_max_bytes_for_level_base(tuning.level1_size)
    options.set_target_file_size_base(tuning.table_size)
    if tuning.levels:
        options.set_num_levels(tuning.levels)
    # A row costs 0.9 us, its compactions included, and 1.6 us with 4 MB.
    options.set_write_buffer_size(write_buffer_bytes)
    options.set_max_write_buffer_number(3)
    options.set_max_total_wal_size(64 << 20)
    # RocksDB keeps ten of them for other things, and takes no less than 20.
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    options.set_max_open_files(64 if descriptors == resource.RLIM_INFINITY else min(64, max(20, descriptors // 16)))
    options.set_max_background_jobs(2)
    options.set_manifest_preallocation_size(64 << 10)
    options.set_skip_stats_update_on_db_open(True)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_max_log_file_size(1 << 20)
    options.set_keep_log_file_num(2)
    if tuning.log_directory:
        folder = os.path.join(tuning.log_directory, os.path.basename(path))
        os.makedirs(folder, exist_ok=True)
        options.set_db_log_dir(folder)
    for setting in tuning.settings:
        _set(rocksdict, options, table, setting)
    options.set_block_based_table_factory(table)  # last: it copies the table's options
    return options


_RENAMED = {
    "level0_file_num_compaction_trigger": "level_zero_file_num_compaction_trigger",
    "level0_slowdown_writes_trigger": "level_zero_slowdown_writes_trigger",
    "level0_stop_writes_trigger": "level_zero_stop_writes_trigger",
}
"""Options whose setter has another name than the option."""


def _checksum(rocksdict: Any, name: str) -> Any:
    return getattr(rocksdict.ChecksumType, CHECKSUMS[name])()


def _value_of(tuning: MapTuning, name: str, default: int) -> int:
    return next((int(each.value) for each in reversed(tuning.settings) if each.name == name), default)


def _set(rocksdict: Any, options: Any, table: Any, setting: Setting) -> None:
    """Set one option that is named as in RocksDB's option files."""
    name, value = setting.name, setting.value
    match name:
        case "block_cache":
            return  # the cache is made with it
        case "compression":
            kind = getattr(rocksdict.DBCompressionType, COMPRESSIONS[str(value)])()
            options.set_compression_per_level([kind])
        case "checksum":
            table.set_checksum_type(_checksum(rocksdict, str(value)))
        case "filter_policy":
            table.set_bloom_filter(int(value), False)
        case _:
            owner = options if setting.place == "map" else table
            getattr(owner, f"set_{_RENAMED.get(name, name)}")(value)

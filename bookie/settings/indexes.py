"""Keys of the two indexes of a bookie, which are RocksDB's. Source: BookKeeper's KeyValueStorageRocksDB."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

from bookie.errors import IndexOptionsError
from bookie.settings.rocksdb_file import FILE_SIZE_MAX, OptionsFileError, read_options
from quire.service.config import BYTES, MB, conf_key
from quire.world.doors import Disk
from quire.world.map_tuning import CHECKSUMS, MapTuning


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFiles:
    """Shape and memory of the two indexes."""

    locations: MapTuning
    ledgers: MapTuning
    write_buffer_bytes: int
    """Size of the location index's buffer."""


@dataclass(frozen=True, kw_only=True)
class IndexKeys:
    """Shape and memory of the index of entry locations; format, checksum and log of the index of ledgers too."""

    rocksdb_write_buffer_mb: int = conf_key(
        "dbStorage_rocksDB_writeBufferSizeMB",
        16,
        minimum=1,
        maximum=1024,
        unit=MB,
        doc="Memory for rows of the location index before they go into a table; up to three times as much is used.",
    )
    rocksdb_table_mb: int = conf_key(
        "dbStorage_rocksDB_sstSizeInMB", 64, minimum=1, maximum=4096, unit=MB, doc="Size of a table of the index."
    )
    rocksdb_block_bytes: int = conf_key(
        "dbStorage_rocksDB_blockSize",
        8 << 10,
        minimum=512,
        maximum=1 << 20,
        unit=BYTES,
        doc="Size of a block of a table, which is read as a whole.",
    )
    rocksdb_bloom_bits: int = conf_key(
        "dbStorage_rocksDB_bloomFilterBitsPerKey",
        10,
        minimum=0,
        maximum=64,
        doc="Bits of the filter of a table for each row. 0: tables have no filter.",
    )
    rocksdb_levels: int = conf_key(
        "dbStorage_rocksDB_numLevels", -1, minimum=-1, maximum=20, doc="Levels of the index. -1 or 0: seven."
    )
    rocksdb_level0_files: int = conf_key(
        "dbStorage_rocksDB_numFilesInLevel0",
        8,
        minimum=1,
        maximum=1000,
        doc="Tables of the first level that are merged together.",
    )
    rocksdb_level1_mb: int = conf_key(
        "dbStorage_rocksDB_maxSizeInLevel1MB",
        256,
        minimum=1,
        maximum=1 << 20,
        unit=MB,
        doc="Size of the second level, above which it is merged into the next one.",
    )
    rocksdb_lz4: bool = conf_key(
        "dbStorage_rocksDB_lz4CompressionEnabled",
        True,
        doc="true: tables are compressed, except those of the first level.",
    )
    rocksdb_format: int = conf_key(
        "dbStorage_rocksDB_format_version",
        5,
        minimum=2,
        maximum=5,
        doc="Format of new tables. A bookie of the original reads up to 5.",
    )
    rocksdb_checksum: str = conf_key(
        "dbStorage_rocksDB_checksum_type",
        "kxxHash",
        choices=tuple(CHECKSUMS),
        doc="Checksum of the blocks of new tables.",
    )
    rocksdb_log_path: str = conf_key(
        "dbStorage_rocksDB_logPath",
        "",
        doc="Folder of RocksDB's own logs, with a folder for each index. Empty: beside its tables.",
    )
    locations_options_file: str = conf_key(
        "entryLocationRocksdbConf",
        "",
        doc="Options file of RocksDB for the location index; if it exists, it counts instead of the keys above but the "
        "log's path.",
    )
    ledgers_options_file: str = conf_key(
        "ledgerMetadataRocksdbConf", "", doc="The same for the index of ledgers; if it does not exist, the keys count."
    )

    def index_files(self, disk: Disk) -> IndexFiles:
        """Return shape and memory of the indexes. Blocking. IndexOptionsError, OSError."""
        both = MapTuning(
            format_version=self.rocksdb_format, checksum=self.rocksdb_checksum, log_directory=self.rocksdb_log_path
        )
        locations = replace(
            both,
            block_size=self.rocksdb_block_bytes,
            bloom_bits=self.rocksdb_bloom_bits,
            lz4=self.rocksdb_lz4,
            levels=max(0, self.rocksdb_levels),
            level0_files=self.rocksdb_level0_files,
            level1_size=self.rocksdb_level1_mb << 20,
            table_size=self.rocksdb_table_mb << 20,
        )
        buffer_bytes = self.rocksdb_write_buffer_mb << 20
        locations = _with_file(disk, "entryLocationRocksdbConf", self.locations_options_file, locations)
        ledgers = _with_file(disk, "ledgerMetadataRocksdbConf", self.ledgers_options_file, both)
        return IndexFiles(locations=locations, ledgers=ledgers, write_buffer_bytes=buffer_bytes)


def _with_file(disk: Disk, key: str, path: str, keys: MapTuning) -> MapTuning:
    """Return the tuning of an options file, or of the keys if there is none."""
    if not path:
        return keys
    try:
        file = disk.open(path, writable=False)
    except FileNotFoundError:
        return keys
    with closing(file):
        data = file.pread(FILE_SIZE_MAX + 1, 0)
    if len(data) > FILE_SIZE_MAX:
        raise IndexOptionsError(f"{key}={path}: it has more than {FILE_SIZE_MAX} bytes")
    try:
        settings = read_options(data.decode())
    except (OptionsFileError, UnicodeDecodeError) as error:
        raise IndexOptionsError(f"{key}={path}: {error}") from None
    return MapTuning(log_directory=keys.log_directory, settings=settings)

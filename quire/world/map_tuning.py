"""Tuning of one key-value map: sizes and shapes of RocksDB's files and memory. The simulated map ignores it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

Place: TypeAlias = Literal["map", "table"]


class Setting(NamedTuple):
    """A further option of RocksDB, by the name that it has there."""

    place: Place
    """"map": of the database or its column family; "table": of its tables."""
    name: str
    value: int | bool | str


@dataclass(frozen=True, slots=True, kw_only=True)
class MapTuning:
    """Shape and memory of a map, besides its cache and its write buffer. Sizes in bytes; 0: RocksDB's own."""

    block_size: int = 8 << 10
    format_version: int = 5
    checksum: str = "kxxHash"
    bloom_bits: int = 10
    """Bits of the filter per key; 0: no filter."""
    lz4: bool = True
    levels: int = 0
    level0_files: int = 8
    """Files of the first level that are merged together."""
    level1_size: int = 256 << 20
    table_size: int = 64 << 20
    log_directory: str = ""
    """Folder of RocksDB's own log; empty: that of the map."""
    settings: tuple[Setting, ...] = ()
    """Set last."""


COMPRESSIONS: Final[Mapping[str, str]] = {
    "kNoCompression": "none",
    "kSnappyCompression": "snappy",
    "kZlibCompression": "zlib",
    "kBZip2Compression": "bz2",
    "kLZ4Compression": "lz4",
    "kLZ4HCCompression": "lz4hc",
    "kZSTD": "zstd",
}
CHECKSUMS: Final[Mapping[str, str]] = {
    "kNoChecksum": "no_checksum",
    "kCRC32c": "crc32c",
    "kxxHash": "xxhash",
    "kxxHash64": "xxhash64",
    "kXXH3": "xxh3",
}
"""By RocksDB's name in option files, that of rocksdict."""
DEFAULT_TUNING = MapTuning()

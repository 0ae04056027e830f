"""Check of the header and the ledgers map of one entry log. Blocking.

A log that was not sealed has no map, which is no damage: its bookie died. Ours has a checksum of the map; for a log of
the original the map is compared with the header's count.

Nor is it damage what a power cut leaves of a log that is being sealed. In ours the map is durable before the header
names it, and of checksum and fields each may be lost. The original writes both without a sync between them, so its
header may name a map that was never written: the file ends there, or has nothing but zeros.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final

from bookie.db_ledger_storage.entry_log_format import (
    HEADER_LENGTH,
    LEDGERS_PER_BATCH,
    MAP_FIELDS_BYTES,
    MAP_FIELDS_OFFSET,
    MAP_SEAL_OFFSET,
    decode_header,
    decode_ledgers_map,
    has_map_seal,
    log_name,
)
from bookie.errors import StorageDamagedError
from bookie.scrubber.cold_reads import ColdFile
from quire.world.doors import Disk

MAP_BYTES_MAX: Final = 64 << 20
_BATCH_HEAD: Final = 24
_ROW: Final = 16


def _never_written(file: ColdFile, map_offset: int, size: int) -> bool:
    """Return whether the file has nothing behind its records, where a map should be."""
    if not HEADER_LENGTH <= map_offset <= size <= map_offset + MAP_BYTES_MAX:
        return False
    return not any(file.pread(size - map_offset, map_offset))


def log_damage(disk: Disk, folder: str, log_id: int) -> str:
    """Return what is wrong with a log's header or map; empty if nothing is, or if the log is gone. OSError."""
    try:
        opened = disk.open(f"{folder}/{log_name(log_id)}", writable=False, scattered=True)
    except FileNotFoundError:
        return ""
    with closing(opened):
        file = ColdFile(opened, disk.sectors_read)
        head = file.pread(HEADER_LENGTH, 0)
        size = file.size()
        if size < HEADER_LENGTH or not head.strip(b"\0"):
            return ""  # the bookie died when it created the log; no row can point into it
        try:
            header = decode_header(head)
        except StorageDamagedError as error:
            return str(error)
        sealed = any(head[MAP_SEAL_OFFSET:])
        if not header.has_map:
            # A power cut while the log was sealed may have kept the checksum, and not the fields written after it.
            was_named = any(head[MAP_FIELDS_OFFSET : MAP_FIELDS_OFFSET + MAP_FIELDS_BYTES])
            return "its header has a checksum of a map, but no map" if sealed and was_named else ""
        if not sealed and _never_written(file, header.map_offset, size):
            return ""
        batches = -(-header.ledgers // LEDGERS_PER_BATCH)
        length = header.ledgers * _ROW + batches * _BATCH_HEAD
        if not HEADER_LENGTH <= header.map_offset <= size - length or length > MAP_BYTES_MAX:
            return (
                f"its header names a map of {header.ledgers} ledgers at {header.map_offset}, the log has {size} bytes"
            )
        data = file.pread(length, header.map_offset)
    if sealed:
        return "" if has_map_seal(head, data) else "its ledgers map does not match the checksum in its header"
    try:
        decode_ledgers_map(data, header.ledgers)
    except StorageDamagedError as error:
        return str(error)
    return ""

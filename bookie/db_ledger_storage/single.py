"""Read one entry whose successors are unlikely to be requested: one index lookup, nearly always one read. Blocking.

A cheaper `read_region` for a single entry. The entry is checked against the index by its ids, and its size by the
record behind it. Anything unusual is left to `read_region`, which determines the cause.
"""

from __future__ import annotations

from typing import Final

from bookie.db_ledger_storage.entry_log import EntryLogs
from bookie.db_ledger_storage.entry_log_format import ENTRY_LENGTH_MIN, HEADER_LENGTH, RECORD_HEAD, SIZE_LENGTH
from bookie.db_ledger_storage.location_index import LocationIndex
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.v2 import FRAME_MAX

_POSITION: Final = 0xFFFFFFFF
_GUESS: Final = 4096
"""Bytes of the first read; more are read if the entry is longer."""
_BEHIND: Final = RECORD_HEAD.size
_NEAR: Final = 16
"""Distance in entry ids up to which the ledger's next entry in the log is expected right behind this one."""


def read_single(logs: EntryLogs, locations: LocationIndex, ledger_id: int, entry_id: int) -> Buffer | None:
    """Return the entry, None if it takes more work: not in the index, at the end of its log, or damaged.

    Raises: StorageDamagedError, OSError.
    """
    location = locations.get(ledger_id, entry_id)
    start = (location & _POSITION) - SIZE_LENGTH
    if location < 0 or start < HEADER_LENGTH:
        return None
    log_id = location >> 32
    readers = logs.readers
    read_id = readers.begin_read(log_id)
    try:
        file = readers.file(log_id)
        data = file.pread(_GUESS, start)
        if len(data) < _BEHIND:
            return None
        size, found_ledger, found_entry = RECORD_HEAD.unpack_from(data)
        if found_entry != entry_id or found_ledger != ledger_id or not ENTRY_LENGTH_MIN <= size <= FRAME_MAX:
            return None
        end = SIZE_LENGTH + size
        if end + _BEHIND > len(data):
            if len(data) < _GUESS:
                return None
            data += file.pread(end + _BEHIND - _GUESS, start + _GUESS)
            if end + _BEHIND > len(data):
                return None
    finally:
        readers.end_read(read_id)
    _, found_ledger, found_entry = RECORD_HEAD.unpack_from(data, end)
    is_own = found_ledger == ledger_id and entry_id < found_entry <= entry_id + _NEAR
    # The neighbour may belong to another ledger. If it is an entry at all, the index points to it.
    if not is_own and (found_ledger < 0 or locations.get(found_ledger, found_entry) != location + end):
        return None
    return memoryview(data)[SIZE_LENGTH:end]

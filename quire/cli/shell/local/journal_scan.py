"""A journal file record by record, with the offset of each, as far as it can be followed (pure but for the reading).

`bookie.journal.replay` implements the replay at a start, with groups and checksums. This module inspects any file,
damaged or not: it ends where the original's reader ends.

Source: BookKeeper's Journal.scanJournal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from bookie.journal.format import PADDING_MASK, RECORD_LENGTH_MIN, FileHeader

ReadAt = Callable[[int, int], bytes]
"""Reader `read(size, offset)` of up to `size` bytes, fewer only at the end of the file."""

_CHUNK: Final = 1 << 20
_HEAD: Final = Struct("!iqq")
_INT: Final = Struct("!i")
_LENGTH: Final = 4


class JournalRecord(NamedTuple):
    """Record of a journal. `offset` is that of the length field, in bytes from the start of the file; `body` begins
    with the two ids."""

    ledger_id: int
    entry_id: int
    offset: int
    body: memoryview


class JournalScan:
    """Scan of a journal file. After the iteration, `stopped` has the reason why it ended, with the offset; empty at the
    end of the data."""

    def __init__(self, read: ReadAt, file_size: int, header: FileHeader, *, chunk_size: int = _CHUNK) -> None:
        self._read = read
        self._file_size = file_size
        self._header = header
        self._chunk_size = chunk_size
        self.stopped = ""

    def __iter__(self) -> Iterator[JournalRecord]:
        at = self._header.start
        chunk = memoryview(b"")
        chunk_at = at
        while at + 2 * _LENGTH <= self._file_size:
            inside = at - chunk_at
            if inside + 2 * _LENGTH > len(chunk):
                chunk, chunk_at, inside = memoryview(self._read(self._chunk_size, at)), at, 0
                if len(chunk) < 2 * _LENGTH:
                    return
            (length,) = _INT.unpack_from(chunk, inside)
            if length == 0:
                return
            if length == PADDING_MASK and self._header.version >= 5:
                (padding,) = _INT.unpack_from(chunk, inside + _LENGTH)
                if padding < 0:
                    self.stopped = f"padding of {padding} bytes at offset {at}"
                    return
                at += 2 * _LENGTH + padding
                continue
            if length < RECORD_LENGTH_MIN:
                self.stopped = f"a record of {length} bytes at offset {at}"
                return
            if at + _LENGTH + length > self._file_size:
                self.stopped = f"a record of {length} bytes at offset {at}, beyond the end of the file"
                return
            if inside + _LENGTH + length > len(chunk):
                chunk, chunk_at, inside = memoryview(self._read(max(self._chunk_size, _LENGTH + length), at)), at, 0
            _, ledger_id, entry_id = _HEAD.unpack_from(chunk, inside)
            yield JournalRecord(ledger_id, entry_id, at, chunk[inside + _LENGTH : inside + _LENGTH + length])
            at += _LENGTH + length

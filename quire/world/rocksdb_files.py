"""Formats of RocksDB's own files, to distinguish damage from a torn tail: logs, the MANIFEST, names. Pure.

    log file   blocks of 32 KiB; in them records, none of which crosses the end of a block
    record     crc32c(4, masked) length(2) type(1) payload; all little-endian
               type 1 whole, 2 first, 3 middle, 4 last part
               the crc covers type and payload; fewer than 7 bytes left in a block are zeros
    MANIFEST   a log file of edits: (tag, value)*, numbers as varints. Only fields about needed logs are read

Types 5 to 8, with a log number behind the type, belong to recycled logs. Source: RocksDB's log_format.h,
version_edit.cc.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

BLOCK: Final = 32 << 10
_HEAD: Final = Struct("<IHB")
_RECYCLED_MORE: Final = 4
_MASK_DELTA: Final = 0xA282EAD8
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_LOG_NAME: Final = re.compile(r"(\d+)\.log")
_MANIFEST_NAME: Final = re.compile(r"MANIFEST-(\d+)")
_TABLE_NAME: Final = re.compile(r"(\d+)\.(?:sst|ldb|blob)")


def log_number(name: str) -> int:
    """Return the number in the name of a log, -1 if it is another name.

    >>> log_number("000012.log"), log_number("LOG")
    (12, -1)
    """
    found = _LOG_NAME.fullmatch(name)
    return int(found[1]) if found else -1


def log_name(number: int) -> str:
    return f"{number:06}.log"


def manifest_number(name: str) -> int:
    """Return the number in the name of a MANIFEST, -1 if it is another name."""
    found = _MANIFEST_NAME.fullmatch(name)
    return int(found[1]) if found else -1


def manifest_name(number: int) -> str:
    return f"MANIFEST-{number:06}"


def is_table(name: str) -> bool:
    """Return whether this is the name of a file of sorted rows, or of large values."""
    return _TABLE_NAME.fullmatch(name) is not None


class LogEnd(NamedTuple):
    """End of the good records of a log file: `offset`.

    `bad_before`: offset of a good record behind a bad one; -1 if there is none.
    """

    offset: int
    bad_before: int = -1


class _Fragment(NamedTuple):
    start: int
    end: int
    kind: int
    payload: bytes


def records(data: bytes, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield the whole records from `start` on, where one begins, each with its end; stop at the first bad one."""
    parts: list[bytes] = []
    for fragment in _fragments(data, start):
        kind = fragment.kind
        if kind == _WHOLE and not parts:
            yield fragment.end, fragment.payload
        elif kind == (_MIDDLE if parts else _FIRST):
            parts.append(fragment.payload)
        elif kind == _LAST and parts:
            parts.append(fragment.payload)
            yield fragment.end, b"".join(parts)
            parts = []
        elif kind > _LAST:
            continue
        else:
            return


def log_end(data: bytes, start: int = 0) -> LogEnd:
    """Find the end of the readable records of a log from `start` on, and whether good ones follow a bad one.

    Behind a bad record the next one is searched at every byte of its block, then at the start of every further block,
    so that no length has to be trusted. A good part of a record only proves that it was written after the bad one.
    """
    end = max((end for end, _ in records(data, start)), default=start)
    if not any(memoryview(data)[end:]):
        return LogEnd(end)
    block_end = (end // BLOCK + 1) * BLOCK
    for position in chain(range(end + 1, min(block_end, len(data))), range(block_end, len(data), BLOCK)):
        if _good(data, position) is not None:
            return LogEnd(end, position)
    return LogEnd(end)


def _fragments(data: bytes, start: int) -> Iterator[_Fragment]:
    """Yield good parts of records from `start` on, up to the first bad one."""
    position = start
    while True:
        left = BLOCK - position % BLOCK
        if left < _HEAD.size:
            position += left
        fragment = _good(data, position)
        if fragment is None:
            return
        yield fragment
        position = fragment.end


def _good(data: bytes, start: int) -> _Fragment | None:
    """Return the part of a record that begins at `start`, if it is good."""
    if start + _HEAD.size > len(data):
        return None
    crc, length, kind = _HEAD.unpack_from(data, start)
    recycled = 5 <= kind <= 8
    head = _HEAD.size + (_RECYCLED_MORE if recycled else 0)
    end = start + head + length
    if kind == 0 or head + length > BLOCK - start % BLOCK or end > len(data):
        return None
    if unmask(crc) != crc32c(memoryview(data)[start + 6 : end]):
        return None
    return _Fragment(start, end, kind - 4 if recycled else kind, data[start + head : end])


def unmask(crc: int) -> int:
    """Return the crc32c that RocksDB stored as `crc`."""
    rotated = (crc - _MASK_DELTA) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


# --- the MANIFEST


class UnknownEditError(Exception):
    """A field of an edit that this reader does not know; RocksDB may."""


@dataclass
class ManifestState:
    """State that results from the edits of a MANIFEST."""

    logs_from: int = 0
    """Number of the oldest log that is needed; lower ones may be missing."""
    tables: dict[int, int] | None = None
    """Bytes of each live file of rows, by number. None: unknown."""
    known: bool = True
    """True if every edit was understood."""


_COMPARATOR, _LOG, _NEXT_FILE, _LAST_SEQUENCE, _COMPACT, _DELETED, _PREVIOUS_LOG, _KEEP = 1, 2, 3, 4, 5, 6, 9, 10
_NEW_FILE_2, _NEW_FILE_3, _NEW_FILE_4 = 100, 102, 103
_FAMILY, _FAMILY_ADD, _FAMILY_DROP, _FAMILY_MAX = 200, 201, 202, 203
_ATOMIC_GROUP, _BLOB, _BLOB_GARBAGE = 300, 400, 401
_SAFE_TO_PASS: Final = 1 << 13


def manifest_state(edits: Iterable[bytes]) -> ManifestState:
    """Apply edits, oldest first."""
    state = ManifestState(tables={})
    families: dict[int, int] = {0: 0}
    keep = 0
    for edit in edits:
        try:
            keep = max(keep, _apply(edit, families, state))
        except (UnknownEditError, IndexError):
            state.known = False
            state.tables = None
    state.logs_from = max(keep, min(families.values(), default=0))
    return state


def _apply(edit: bytes, families: dict[int, int], state: ManifestState) -> int:
    """Apply one edit; return the oldest log to keep that it names, 0 if none."""
    reader = _Reader(edit)
    family = 0
    log = -1
    keep = 0
    dropped = False
    tables = state.tables if state.tables is not None else {}
    while reader.more:
        tag = reader.number()
        if tag in (_NEXT_FILE, _LAST_SEQUENCE, _PREVIOUS_LOG, _FAMILY_MAX, _ATOMIC_GROUP):
            reader.number()
        elif tag in (_COMPARATOR, _FAMILY_ADD):
            reader.piece()
        elif tag == _LOG:
            log = reader.number()
        elif tag == _KEEP:
            keep = reader.number()
        elif tag == _COMPACT:
            reader.number()
            reader.piece()
        elif tag == _DELETED:
            reader.number()
            tables.pop(reader.number(), None)
        elif tag in (_NEW_FILE_2, _NEW_FILE_3, _NEW_FILE_4):
            number, size = _new_file(reader, tag)
            tables[number] = size
        elif tag == _FAMILY:
            family = reader.number()
        elif tag == _FAMILY_DROP:
            dropped = True
        elif tag & _SAFE_TO_PASS:
            reader.piece()
        else:
            raise UnknownEditError(tag)
    if dropped:
        families.pop(family, None)
    elif log >= 0 or family not in families:
        families[family] = max(families.get(family, 0), log)
    return keep


def _new_file(reader: _Reader, tag: int) -> tuple[int, int]:
    reader.number()  # level
    number = reader.number()
    if tag == _NEW_FILE_3:
        reader.number()  # path
    size = reader.number()
    reader.piece()  # smallest key
    reader.piece()  # largest key
    reader.number()
    reader.number()
    if tag == _NEW_FILE_4:
        while reader.number() != 1:
            reader.piece()
    return number, size


class _Reader:
    """Reader of varints and of data with a length; IndexError if the edit is too short."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def more(self) -> bool:
        return self._at < len(self._data)

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def piece(self) -> bytes:
        size = self.number()
        if self._at + size > len(self._data):
            raise IndexError("an edit is too short")
        self._at += size
        return self._data[self._at - size : self._at]

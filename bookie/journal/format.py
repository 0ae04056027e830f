"""Format of the journal. Pure.

A journal is a folder of files `<hex id>.txn`. A new file begins at every start and when one is full. Big-endian,
signed.

    file     header(512) group*  [zeros: space taken in advance]
    header   "BKLG"(4) version(4)  mark  zeros
             original: the mark is zeros too. Ours:
    mark     "QUIREJNL"(8) fileId(8) previousId(8) previousEnd(8) crc32c(4)    = 36 bytes at 8..44; the crc covers 0..40
             "QUIREJNR": the file has old groups of another file behind its own (spares.py)
             (previousId, previousEnd): the file before this one, and where its last good group ends; -1, 0: none
    group    record* padding             begins and ends at a multiple of 512; written, then synced, as one
    record   length(4) ledgerId(8) entryId(8) body(length - 16)
             entryId >= 0    LAC(8) length(8) digest payload: the entry as it came           = 4 + entry bytes
             -0x1000         keyLength(4) key: the ledger's master key                       = 4 + 16 + 4 + 20
             -0x2000         nothing: the ledger is fenced                                   = 4 + 16
             -0x8000         size(4) package: explicit LAC                                   = 4 + 16 + 4 + size
    padding  0xFFFFFF00(4) padLength(4) zeros(padLength - 32) trailer(32)
    trailer  see seal.py

The original's reader skips padLength bytes of a padding record without looking at them, so it does not see the trailer.
It does not read the header past byte 8 either.

Versions 1 to 5, and files of the original: see replay.py. Source: BookKeeper's Journal and JournalChannel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.run import Run

MAGIC: Final = b"BKLG"
VERSION: Final = 6
HEADER_SIZE: Final = 512
ALIGNMENT: Final = 512
HEADER_SIZE_OF_VERSION: Final = {1: 0, 2: 8, 3: 8, 4: 8, 5: HEADER_SIZE, 6: HEADER_SIZE}

PADDING_MASK: Final = -0x100
LEDGER_KEY_ID: Final = -0x1000
FENCE_ID: Final = -0x2000
FORCE_ID: Final = -0x4000
EXPLICIT_LAC_ID: Final = -0x8000
VERSION_NEEDED: Final = {LEDGER_KEY_ID: 3, FENCE_ID: 4, EXPLICIT_LAC_ID: 6}

FILE_ID_MAX: Final = (1 << 63) - 1
RECORD_LENGTH_MIN: Final = 16
RUN_SIZE_MAX: Final = 1 << 20
"""Bytes at which replay ends a run."""
_BLOCK: Final = 32
"""Records of equal length that are decoded together."""
_BLOCK_LENGTH_MAX: Final = 16 << 10
"""Longest records for which that is tried, so that it does not make a run much longer than RUN_SIZE_MAX."""

_HEADER_MAGIC: Final = b"QUIREJNL"
_REUSED_MAGIC: Final = b"QUIREJNR"
_HEADER = Struct("!4si8sqqq")
_HEADER_END: Final = _HEADER.size + 4  # 40 + 4
_CRC = Struct("!I")
_INT = Struct("!i")
_PADDING = Struct("!ii")
_KEY_RECORD = Struct("!iqqi")
_FENCE_RECORD = Struct("!iqq")
_RECORD_HEAD = Struct("!iqq")


class LogMark(NamedTuple):
    """Position in the journal: bytes from the start of file `file_id`. Ordered."""

    file_id: int
    offset: int


NO_MARK: Final = LogMark(0, 0)
"""Position before every file: replay reads all files."""

_MARK = Struct("!qq")


def encode_last_mark(mark: LogMark) -> bytes:
    """Return the content of the file `lastMark`: 8 + 8 bytes."""
    return _MARK.pack(*mark)


def decode_last_mark(data: bytes) -> LogMark | None:
    """Decode `lastMark`; None unless it is exactly 16 bytes, as the original writes it."""
    return LogMark(*_MARK.unpack(data)) if len(data) == _MARK.size else None


class LedgerKey(NamedTuple):
    """Record of a ledger's master key, written before the ledger's first entry in a process's journal."""

    ledger_id: int
    key: bytes

    def encode(self) -> bytes:
        size = len(self.key)
        return _KEY_RECORD.pack(RECORD_LENGTH_MIN + 4 + size, self.ledger_id, LEDGER_KEY_ID, size) + self.key


class Fence(NamedTuple):
    """Record of a fence: the ledger accepts no more adds except recovery's."""

    ledger_id: int

    def encode(self) -> bytes:
        return _FENCE_RECORD.pack(RECORD_LENGTH_MIN, self.ledger_id, FENCE_ID)


class ExplicitLac(NamedTuple):
    """Record of the last LAC package that the ledger's writer sent explicitly."""

    ledger_id: int
    package: bytes

    def encode(self) -> bytes:
        size = len(self.package)
        return _KEY_RECORD.pack(RECORD_LENGTH_MIN + 4 + size, self.ledger_id, EXPLICIT_LAC_ID, size) + self.package


class Force(NamedTuple):
    """Request to sync what was written without a sync. It has no bytes and is never in a file."""

    ledger_id: int

    def encode(self) -> bytes:
        return b""


Record: TypeAlias = Run | LedgerKey | Fence | ExplicitLac | Force


class BadRecordError(Exception):
    """Bytes that are not a record. replay.py turns this into a JournalDamagedError that names the file."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset
        """Bytes from the start of the examined data."""


class BadHeaderError(Exception):
    """The first bytes of a file are neither our header nor the original's."""


def file_name(file_id: int) -> str:
    """
    >>> file_name(0x1a1fdbcafc3)
    '1a1fdbcafc3.txn'
    """
    return f"{file_id:x}.txn"


def file_id_of(name: str) -> int | None:
    """Return the id in a journal file's name; None if it is not a journal file."""
    stem, dot, suffix = name.rpartition(".")
    if not dot or suffix != "txn":
        return None
    try:
        file_id = int(stem, 16)
    except ValueError:
        return None
    return file_id if 0 <= file_id <= FILE_ID_MAX else None


# --- header


class FileHeader(NamedTuple):
    """Header of a file.

    `ours`: every group has a trailer, and `previous` is where the file before it ended (None: there was none).
    `reused`: it was written over another file, whose groups may follow its own.
    """

    version: int
    start: int
    """Offset of the first record, in bytes from the start of the file."""
    ours: bool
    previous: LogMark | None
    reused: bool = False


def encode_header(file_id: int, previous: LogMark | None, *, reused: bool = False) -> bytes:
    """Return a header of 512 bytes."""
    own_magic = _REUSED_MAGIC if reused else _HEADER_MAGIC
    head = _HEADER.pack(MAGIC, VERSION, own_magic, file_id, *(previous or (-1, 0)))
    return (head + _CRC.pack(crc32c(head))).ljust(HEADER_SIZE, b"\0")


def decode_header(data: bytes, file_id: int) -> FileHeader | None:
    """Decode a header; None if the file was never begun (empty, or a header not written to its end). BadHeaderError.

    `data` is the first 512 bytes of the file, or all of it. Our header is written and synced before the first group, so
    an incomplete one means that the file is damaged, unless nothing follows it.
    """
    if not any(data):
        return None
    begun = data.startswith(MAGIC) and len(data) >= 8
    version = _INT.unpack_from(data, 4)[0] if begun else 1
    mark = data[8:_HEADER_END]
    if mark.startswith((_HEADER_MAGIC, _REUSED_MAGIC)) or (version >= 5 and any(mark)):
        return _decode_ours(data, file_id) if len(data) >= HEADER_SIZE else None
    if not begun:
        return None if MAGIC.startswith(data[:4]) else FileHeader(1, 0, False, None)
    if version not in HEADER_SIZE_OF_VERSION or version == 1:
        raise BadHeaderError(f"version {version}; 2 to {VERSION} are known")
    start = HEADER_SIZE_OF_VERSION[version]
    return FileHeader(version, start, False, None) if len(data) >= start else None


def _decode_ours(data: bytes, file_id: int) -> FileHeader:
    head = data[: _HEADER.size]
    magic, version, own_magic, found_id, previous_id, previous_end = _HEADER.unpack(head)
    crc = _CRC.unpack_from(data, _HEADER.size)[0]
    if magic != MAGIC or crc != crc32c(head) or any(data[_HEADER_END:]):
        raise BadHeaderError("the header has a wrong checksum")
    if own_magic not in (_HEADER_MAGIC, _REUSED_MAGIC):
        raise BadHeaderError("the header has no mark of ours")
    if version != VERSION:
        raise BadHeaderError(f"version {version} with our mark; {VERSION} is known")
    if found_id != file_id:
        raise BadHeaderError(f"the header is that of file {file_name(found_id)}")
    previous = None if previous_id < 0 else LogMark(previous_id, previous_end)
    return FileHeader(version, HEADER_SIZE, True, previous, own_magic == _REUSED_MAGIC)


# --- records


class RunBuilder:
    """Builder of runs: consecutive entries of one ledger that are adjacent in `data` become one run."""

    __slots__ = ("_data", "_end", "_expected", "_first", "_ledger_id", "_offsets", "_start")

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._offsets: list[int] = []
        self._ledger_id = -1
        self._first = 0
        self._expected = 0
        self._start = 0
        self._end = 0

    def add(self, ledger_id: int, entry_id: int, start: int, stop: int) -> Run | None:
        """Add the entry with record data[start:stop]; return the run before it if the entry does not continue it."""
        done: Run | None = None
        if (
            ledger_id != self._ledger_id
            or entry_id != self._expected
            or start != self._end
            or stop - self._start > RUN_SIZE_MAX
        ):
            done = self.take()
            self._ledger_id, self._first, self._start = ledger_id, entry_id, start
        self._offsets.append(start - self._start)
        self._expected = entry_id + 1
        self._end = stop
        return done

    def follows(self, ledger_id: int, entry_id: int, start: int) -> bool:
        """Return whether the entry at `start` continues the run, which may still grow."""
        return (
            entry_id == self._expected
            and ledger_id == self._ledger_id
            and start == self._end
            and start - self._start <= RUN_SIZE_MAX
        )

    def add_alike(self, count: int, size: int) -> None:
        """Add `count` entries that follow the run, each with a record of `size` bytes."""
        begin = self._end - self._start
        self._offsets += range(begin, begin + count * size, size)
        self._expected += count
        self._end += count * size

    def take(self) -> Run | None:
        """Return the run so far, if any; the next entry begins another."""
        offsets = self._offsets
        if not offsets:
            return None
        self._offsets = []
        part = bytes(self._data[self._start : self._end])
        ledger_id, self._ledger_id = self._ledger_id, -1
        return Run(ledger_id, self._first, [part], len(part), offsets)


def decode_records(data: memoryview, version: int, unknown: list[int]) -> Iterator[Record]:
    """Return the records in `data`, which holds only whole ones. Runs are copies. BadRecordError.

    Records of unknown kinds are left out; their ids are added to `unknown`. Records of one length that follow each
    other in a run are decoded in blocks, without a step for each.
    """
    runs = RunBuilder(data)
    position = 0
    end = len(data)
    next_try = 0
    while position < end:
        if end - position < 8:
            raise BadRecordError(position, f"{end - position} bytes of a record are left")
        length, word = _PADDING.unpack_from(data, position)
        if length == PADDING_MASK and version >= 5:
            if not 0 <= word <= end - position - 8:
                raise BadRecordError(position, f"padding of {word} bytes; {end - position - 8} are there")
            position += 8 + word
            continue
        stop = position + 4 + length
        if length < RECORD_LENGTH_MIN or stop > end:
            raise BadRecordError(position, f"a record of {length} bytes; {end - position - 4} are there")
        _, ledger_id, entry_id = _RECORD_HEAD.unpack_from(data, position)
        if entry_id >= 0:
            if position >= next_try and length <= _BLOCK_LENGTH_MAX and runs.follows(ledger_id, entry_id, position):
                if _is_block(data, position, length, ledger_id, entry_id):
                    runs.add_alike(_BLOCK, 4 + length)
                    position += _BLOCK * (4 + length)
                    continue
                next_try = position + _BLOCK * (4 + length)
            run = runs.add(ledger_id, entry_id, position, stop)
            if run is not None:
                yield run
        else:
            run = runs.take()
            if run is not None:
                yield run
            record = _decode_special(data[position + 4 : stop], ledger_id, entry_id, version, position)
            if record is None:
                unknown.append(entry_id)
            else:
                yield record
        position = stop
    run = runs.take()
    if run is not None:
        yield run


@lru_cache(maxsize=64)
def _block_heads(length: int) -> Struct:
    """Return the heads of a block of records of this length, as (length, ledger id, entry id) * _BLOCK."""
    return Struct("!" + f"iqq{length - RECORD_LENGTH_MIN}x" * _BLOCK)


def _is_block(data: memoryview, position: int, length: int, ledger_id: int, entry_id: int) -> bool:
    """Return whether a whole block begins at `position`: entries of the ledger from `entry_id` on, in records of
    `length` bytes.
    """
    heads = _block_heads(length)
    if position + heads.size > len(data):
        return False
    fields = heads.unpack_from(data, position)
    return (
        fields[2::3] == tuple(range(entry_id, entry_id + _BLOCK))
        and fields[1::3] == (ledger_id,) * _BLOCK
        and fields[::3] == (length,) * _BLOCK
    )


def _decode_special(
    body: memoryview, ledger_id: int, entry_id: int, version: int, position: int
) -> LedgerKey | Fence | ExplicitLac | None:
    needed = VERSION_NEEDED.get(entry_id)
    if needed is None:
        return None
    if version < needed:
        raise BadRecordError(position, f"a record of kind {entry_id} in a file of version {version}")
    if entry_id == FENCE_ID:
        return Fence(ledger_id)
    if len(body) < 20:
        raise BadRecordError(position, f"a record of kind {entry_id} with {len(body)} bytes")
    size = _INT.unpack_from(body, 16)[0]
    if size != len(body) - 20:
        raise BadRecordError(position, f"{size} bytes in a record of kind {entry_id} with room for {len(body) - 20}")
    value = bytes(body[20:])
    return LedgerKey(ledger_id, value) if entry_id == LEDGER_KEY_ID else ExplicitLac(ledger_id, value)


def record_bytes(records: Sequence[Record]) -> tuple[list[Buffer], int]:
    """Return the parts that hold these records end to end, and their size in bytes."""
    parts: list[Buffer] = []
    size = 0
    for record in records:
        if isinstance(record, Run):
            parts += record.parts
            size += record.size
        else:
            encoded = record.encode()
            parts.append(encoded)
            size += len(encoded)
    return parts, size

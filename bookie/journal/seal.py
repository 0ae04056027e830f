"""Seals, the proofs that a start finds what was synced: a trailer in each group of the journal, and beside the journal
the positions where replay begins and up to which it was synced.

A group that a crash left half written must not be taken for data, nor a damaged one for the end:

    trailer  "QUIREGRP"(8) fileId(8) offset(8) size(4) crc32c(4)
             the group begins at `offset` of file `fileId` and has `size` bytes with its padding; the crc covers all
             of them but its own four
             "QUIREGRU": the group before this one was not synced when this one was written (deferred sync), so a crash
             may have kept only this one

The padding record is written even where alignment needs none, so every group has its trailer in the last 32 bytes
before a multiple of 512. A reader finds it there without trusting any length.

Why the rest is hard: `lastMark` has BookKeeper's 16 bytes and no checksum. A flipped bit that makes it larger hides all
records in between. A journal that is cut, or whose newest file is missing, looks like one that ends earlier. A damaged
last group looks like an unsynced tail. Therefore `lastMark.sealed` stands beside lastMark. It holds a mark that is
written and synced before lastMark, and the end of the synced journal.

The end is stored after every sync, before anything is acknowledged, into memory that survives the process
(`Disk.board`). That takes 1 us, without a system call or sync. It is synced with each mark and each new journal file;
in between a power cut may set it back, never forward. So it may be behind the real end and is never ahead of it.

    file    4 sectors of 512 bytes: two for the mark, written in turn, two for the end, likewise
    sector  "QUIREMRK" or "QUIREEND"(8) number(8) fileId(8) offset(8) crc32c(4) of these, zeros
            the higher number counts

Use at startup (`plan_replay`, pure):

    the seal's mark        replay begins there, whatever lastMark says; the journal must reach the seal's end
    no seal, or one that   a folder of BookKeeper's or of an older version, or one that such a program has served
    others left behind     since (there are newer journal files): the whole journal is replayed. Duplicate records do no
                           harm
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, Protocol

from crc32c import crc32c

from bookie.errors import JournalFailedError
from bookie.journal.format import ALIGNMENT, NO_MARK, PADDING_MASK, LogMark, file_name
from quire.wire.bookkeeper.entry import Buffer
from quire.world.damage import Finding
from quire.world.doors import Board, Disk

TRAILER_MAGIC: Final = b"QUIREGRP"
UNSYNCED_MAGIC: Final = b"QUIREGRU"
MAGIC_PREFIX: Final = b"QUIREGR"
"""Common prefix of both magic numbers: a search looks for it."""
_TRAILER = Struct("!8sqqI")
_SUM: Final = Struct("!I")
TRAILER_SIZE: Final = _TRAILER.size + _SUM.size  # 28 + 4
_PADDING = Struct("!ii")
PADDING_SIZE_MIN: Final = _PADDING.size + TRAILER_SIZE
_ZEROS: Final = bytes(ALIGNMENT)

SEAL_SUFFIX: Final = ".sealed"
SEAL_FILE: Final = f"lastMark{SEAL_SUFFIX}"
SECTOR: Final = 512
SIZE: Final = 4 * SECTOR
_MARK_MAGIC: Final = b"QUIREMRK"
_END_MAGIC: Final = b"QUIREEND"
_FIELDS: Final = Struct("!8sqqq")


# --- trailers of groups


def seal_group(
    parts: list[Buffer], size: int, total: int, file_id: int, offset: int, *, after_unsynced: bool = False
) -> None:
    """Append the padding record to the records `parts` of `size` bytes.

    It ends the group at `offset` of file `file_id`. `total`: `group_size(size)`, the size of the whole group.
    """
    pad_length = total - size - _PADDING.size
    trailer = _TRAILER.pack(UNSYNCED_MAGIC if after_unsynced else TRAILER_MAGIC, file_id, offset, total)
    parts.append(_PADDING.pack(PADDING_MASK, pad_length) + _ZEROS[: pad_length - TRAILER_SIZE] + trailer)
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
    parts.append(_SUM.pack(crc))


def group_size(size: int) -> int:
    """Return the bytes of a group of `size` bytes of records, with its padding.

    >>> group_size(472), group_size(473)
    (512, 1024)
    """
    return -(-(size + PADDING_SIZE_MIN) // ALIGNMENT) * ALIGNMENT


class Trailer(NamedTuple):
    file_id: int
    offset: int
    size: int
    crc: int
    after_unsynced: bool


def decode_trailer(data: Buffer) -> Trailer | None:
    """Return the trailer in these 32 bytes, None if they are not one."""
    magic, file_id, offset, size = _TRAILER.unpack_from(data)
    if magic not in (TRAILER_MAGIC, UNSYNCED_MAGIC):
        return None
    return Trailer(file_id, offset, size, _SUM.unpack_from(data, _TRAILER.size)[0], magic == UNSYNCED_MAGIC)


def group_is_good(group: Buffer, trailer: Trailer) -> bool:
    """Return whether these are the bytes that the trailer was made for."""
    return len(group) == trailer.size and crc32c(memoryview(group)[:-4]) == trailer.crc


# --- the journal's seal


class Sealed(NamedTuple):
    """Content of a seal.

    `mark`: where replay begins. `end`: the journal was synced up to there; None: unknown. `number`: of the last mark
    and the last end. `damaged`: sectors that are neither good nor empty.
    """

    mark: LogMark | None = None
    end: LogMark | None = None
    mark_number: int = 0
    end_number: int = 0
    damaged: int = 0


def encode_sector(magic: bytes, number: int, mark: LogMark) -> bytes:
    data = _FIELDS.pack(magic, number, *mark)
    return data + _SUM.pack(crc32c(data))


def decode_seal(data: bytes) -> Sealed:
    """Decode a seal, using the best sector of each pair."""
    found: dict[bytes, tuple[int, LogMark]] = {}
    damaged = 0
    for index in range(4):
        sector = data[index * SECTOR : (index + 1) * SECTOR]
        magic = _MARK_MAGIC if index < 2 else _END_MAGIC
        end = _FIELDS.size + _SUM.size
        if len(sector) >= end and _SUM.unpack_from(sector, _FIELDS.size)[0] == crc32c(sector[: _FIELDS.size]):
            found_magic, number, file_id, offset = _FIELDS.unpack_from(sector)
            if found_magic == magic:
                found[magic] = max(found.get(magic, (-1, NO_MARK)), (number, LogMark(file_id, offset)))
                continue
        damaged += len(sector) < SECTOR or any(sector)
    mark_number, mark = found.get(_MARK_MAGIC, (0, None))
    end_number, reached = found.get(_END_MAGIC, (0, None))
    return Sealed(mark, reached, mark_number, end_number, damaged)


def read_seal(disk: Disk, path: str) -> Sealed | None:
    """Read the seal; None if there is none. Blocking."""
    try:
        return decode_seal(disk.read(path))
    except FileNotFoundError:
        return None


def best_seal(seals: Sequence[Sealed]) -> Sealed | None:
    """Return what the copies of a seal in several directories say together; None if there is none.

    A directory that could not be written has an older copy; none is ever ahead of the truth. The numbers are those of
    no copy.
    """
    if len(seals) < 2:
        return seals[0] if seals else None
    return Sealed(
        mark=max((seal.mark for seal in seals if seal.mark is not None), default=None),
        end=max((seal.end for seal in seals if seal.end is not None), default=None),
        damaged=sum(seal.damaged for seal in seals),
    )


class ReplayPlan(NamedTuple):
    """Plan of a replay: it begins at `mark`.

    File `named` must exist (0: none); the journal must reach `promised`, if known.
    """

    mark: LogMark
    named: int = 0
    promised: LogMark | None = None
    findings: tuple[Finding, ...] = ()


def plan_replay(
    last_mark: LogMark | None, sealed: Sealed | None, journal_ids: Sequence[int], *, last_mark_path: str, seal_path: str
) -> ReplayPlan:
    """Plan the replay. Pure.

    `last_mark`: content of the file; NO_MARK: it is missing, None: it is not 16 bytes long. `journal_ids`: ids of the
    files that hold more than a header, ascending.
    """
    findings: list[Finding] = []

    def note(file: str, what: str) -> None:
        findings.append(Finding(file, what, loses=False))

    if last_mark is None:
        note(last_mark_path, "is damaged: it is not 16 bytes long")
    if sealed is not None and sealed.damaged:
        note(seal_path, f"has {sealed.damaged} sectors that are damaged or torn")
    known = last_mark or NO_MARK
    newest = journal_ids[-1] if journal_ids else -1
    if sealed is None or sealed.mark is None or sealed.end is None:
        if sealed is not None or (known != NO_MARK and journal_ids):
            note(seal_path, "proves no mark: the whole journal is replayed")
        promised = (
            sealed.end if sealed is not None and sealed.end is not None and newest <= sealed.end.file_id else None
        )
        return ReplayPlan(NO_MARK, known.file_id, promised, tuple(findings))
    if newest > sealed.end.file_id:
        note(seal_path, f"is older than journal file {file_name(newest)}: the whole journal is replayed")
        return ReplayPlan(NO_MARK, known.file_id, None, tuple(findings))
    if known != sealed.mark and last_mark is not None:
        missing = "is missing" if known == NO_MARK else f"says {known.file_id:x}, {known.offset}"
        where = f"{sealed.mark.file_id:x}, {sealed.mark.offset}"
        note(last_mark_path, f"{missing}, its sealed copy {where}: replay begins at that")
    return ReplayPlan(sealed.mark, sealed.mark.file_id, sealed.end, tuple(findings))


class SealedEnd(Protocol):
    """The part of a seal that the journal's thread writes: see `JournalSeal`."""

    def reached(self, end: LogMark) -> None:
        """Record that the journal is synced up to `end`."""

    def begun(self, end: LogMark) -> None:
        """Record that a file of the journal has been begun. JournalFailedError."""


class JournalSeal:
    """Seal of a serving bookie.

    `reached` is called by the journal's thread, `write_mark` by any other: they write different sectors.
    """

    def __init__(self, board: Board, sealed: Sealed) -> None:
        self._board = board
        self._mark_number = sealed.mark_number
        self._end_number = sealed.end_number

    @classmethod
    def open(cls, disk: Disk, path: str) -> JournalSeal:
        """Open the seal in file `path`; create it if it is missing or was cut. Blocking. OSError."""
        sealed = read_seal(disk, path)
        data = disk.read(path) if sealed is not None else b""
        if len(data) != SIZE:
            disk.write_atomic(path, data[:SIZE].ljust(SIZE, b"\0"))
        return cls(disk.board(path), sealed or Sealed())

    def write_mark(self, mark: LogMark) -> None:
        """Store the mark; durable on return. OSError."""
        self._mark_number += 1
        place = self._mark_number % 2 * SECTOR
        self._board.store(place, encode_sector(_MARK_MAGIC, self._mark_number, mark))
        self._board.sync()

    def reached(self, end: LogMark) -> None:
        """Record that the journal is synced up to `end`.

        Never fails; durable with the next mark, or when the kernel writes it back.
        """
        number = self._end_number = self._end_number + 1
        self._board.store((2 + number % 2) * SECTOR, encode_sector(_END_MAGIC, number, end))

    def begun(self, end: LogMark) -> None:
        """Record that a file of the journal has been begun and must exist from now on: durable on return.

        JournalFailedError.
        """
        self.reached(end)
        try:
            self.sync()
        except OSError as error:
            raise JournalFailedError(f"the seal of the journal cannot be synced: {error}") from error

    def sync(self) -> None:
        """Make what was stored durable. OSError."""
        self._board.sync()

    def close(self) -> None:
        self._board.close()

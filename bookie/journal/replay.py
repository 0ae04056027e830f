"""Reading the journal at startup: every record behind the last mark, distinguishing a torn tail from damage.

Why this is hard: a crash may leave any part of the last, unsynced group on disk, and a broken disk may damage any
group. The first is normal and must not stop the bookie; the second may hide acknowledged entries and must. Both look
like a group with a wrong checksum.

Our files have a trailer per group (format.py), so each group is either good or not:

    a group that is not good, with a good one behind it        damage: a crash never leaves this, because a group is
                                                               written only when the one before it is on the disk
    a group that is not good, before the end that the next     damage, for the same reason
    file's header names
    a group that is not good, nothing good behind it           an unsynced tail: it was never acknowledged; dropped,
                                                               and logged with file, offset and bytes
    the same, and only groups behind it that say they were     an unsynced tail too, all of it: deferred sync, which
    written after an unsynced one                              was never answered as synced

The header of a file of ours is synced before the seal names the file (seal.py). So the file in which the seal ends has
a header of ours; if it is cut, zeroed or overwritten, that is damage, even if the seal promises no group behind it.

Files of the original have no checksums, and the original's rules apply. A length of 0, or a record longer than the rest
of the file, ends the file, unless the next file's header names a later end. Any other impossible length is damage.

Damage refuses the start (JournalDamagedError) unless `skip_invalid` is set. Then a damaged group of ours, or the rest
of a damaged file of the original, is discarded with an ERROR that says what was lost.
Source: BookKeeper's Journal.scanJournal and Bookie.readJournal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from bookie.errors import JournalDamagedError
from bookie.journal.format import (
    ALIGNMENT,
    HEADER_SIZE,
    PADDING_MASK,
    RECORD_LENGTH_MIN,
    RUN_SIZE_MAX,
    BadHeaderError,
    BadRecordError,
    FileHeader,
    LogMark,
    Record,
    decode_header,
    decode_records,
    file_id_of,
    file_name,
)
from bookie.journal.seal import MAGIC_PREFIX, TRAILER_SIZE, Trailer, decode_trailer, group_is_good
from quire.service.log import get_logger
from quire.world.doors import Disk, File

log = get_logger(__name__)

_BLOCK: Final = 4 << 20
_FORGOTTEN: Final = 16 << 20
"""Bytes that are read before their pages are given back to the machine."""
_LENGTHS = Struct("!ii")


def journal_ids(disk: Disk, directory: str) -> list[int]:
    """Return the ids of the journal files in a folder, oldest first. Blocking."""
    return sorted(i for i in (file_id_of(name) for name in disk.names(directory)) if i is not None)


def written_ids(disk: Disk, directory: str, after: int) -> list[int]:
    """Return the ids of the journal files, oldest first, without those above `after` that hold only a header.

    Blocking.
    """

    def is_written(file_id: int) -> bool:
        file = disk.open(f"{directory}/{file_name(file_id)}", writable=False)
        try:
            if _is_reused(file, file_id):
                return any(file.pread(ALIGNMENT, HEADER_SIZE))
            return _has_data(file, HEADER_SIZE)
        finally:
            file.close()

    return [i for i in journal_ids(disk, directory) if i <= after or is_written(i)]


@dataclass
class Replay:
    """One pass over the journal in `directory` from `mark` on. Blocking."""

    disk: Disk
    directory: str
    mark: LogMark
    skip_invalid: bool = False
    """Value of skipReplayJournalInvalidRecord."""
    promised: LogMark | None = None
    """Position up to which the journal was synced according to its seal: a shorter journal is damaged."""
    named: int = 0
    """Id of a file that must exist; 0: none."""
    quiet: bool = False
    """True to log nothing, for a pass that only examines."""
    forgets: bool = False
    """True to give the pages of what was read back to the machine: nothing reads them again."""
    end: LogMark = field(init=False)
    """Position of the next record after `batches` is exhausted; the mark if there was no file."""
    records: int = field(init=False, default=0)
    dropped: list[tuple[str, int, int]] = field(init=False, default_factory=list)
    """Unsynced tails as (path, offset, bytes)."""
    given_up: list[tuple[str, int, int]] = field(init=False, default_factory=list)
    """Skipped damage as (path, offset, bytes)."""

    def __post_init__(self) -> None:
        self.end = self.mark

    def batches(self) -> Iterator[list[Record]]:
        """Yield the records in order, a group or some megabytes at a time. JournalDamagedError, OSError."""
        for file_id, header, promised in self.check_files():
            self.end = LogMark(file_id, 0)
            if header is None:
                continue
            path = f"{self.directory}/{file_name(file_id)}"
            start = max(header.start, self.mark.offset if file_id == self.mark.file_id else 0)
            file = self.disk.open(path, writable=False)
            try:
                reader = _FileReader(self, file, path, file_id, header, start)
                yield from reader.read_ours(promised) if header.ours else reader.read_originals(promised)
            finally:
                file.close()

    def check_files(self) -> list[tuple[int, FileHeader | None, int]]:
        """Check that all files are there, with good headers.

        Return for each its id, its header (None: nothing of it is read) and the position that its records must reach,
        -1 if unknown. JournalDamagedError, OSError.
        """
        ids = [i for i in journal_ids(self.disk, self.directory) if i >= self.mark.file_id]
        if self.mark.file_id > 0 and (not ids or ids[0] != self.mark.file_id):
            self._missing(self.mark.file_id, "lastMark names this file, and it is missing")
        if self.named and self.named not in ids:
            self._missing(self.named, "lastMark names this file, and it is missing")
        sealed = self.promised
        if sealed is not None and sealed.file_id not in ids:
            self._missing(sealed.file_id, f"it is missing, and was synced up to {sealed.offset}")
        begun = -1 if sealed is None else sealed.file_id
        headers = {i: self._header(i, begun=i == begun) for i in ids}
        files: list[tuple[int, FileHeader | None, int]] = []
        for index, file_id in enumerate(ids):
            header = headers[file_id]
            promised = sealed.offset if sealed is not None and sealed.file_id == file_id else -1
            following = headers[ids[index + 1]] if index + 1 < len(ids) else None
            if following is not None and following.previous is not None:
                if following.previous.file_id != file_id:
                    self._missing(following.previous.file_id, f"it is missing: {file_name(ids[index + 1])} follows it")
                else:
                    promised = max(promised, following.previous.offset)
            if header is None or (file_id == begun and not header.ours):
                if file_id == begun or promised > HEADER_SIZE:
                    path = f"{self.directory}/{file_name(file_id)}"
                    self.give_up(path, 0, promised, f"it has no header of ours, and was synced up to {promised}")
                header = None
            files.append((file_id, header, promised))
        return files

    def _header(self, file_id: int, *, begun: bool) -> FileHeader | None:
        """Return the header; None if there is none. `begun`: it must be there, so its rest is no unsynced tail."""
        path = f"{self.directory}/{file_name(file_id)}"
        file = self.disk.open(path, writable=False)
        try:
            data = file.pread(HEADER_SIZE, 0)
            header = decode_header(data, file_id)
            if header is None and _extent(file, 0) > HEADER_SIZE:
                raise BadHeaderError("the header is missing, but data follows it")
        except BadHeaderError as error:
            self.give_up(path, 0, file.size(), str(error))
            return None
        else:
            if header is None and data and not begun:
                self.drop(path, 0, len(data))
            return header
        finally:
            file.close()

    def _missing(self, file_id: int, reason: str) -> None:
        self.give_up(f"{self.directory}/{file_name(file_id)}", 0, 0, reason)

    def drop(self, path: str, offset: int, size: int) -> None:
        """Record an unsynced tail."""
        if not self.quiet:
            log.warning("unsynced tail of the journal dropped", file=path, offset=offset, bytes=size)
        self.dropped.append((path, offset, size))

    def give_up(self, path: str, offset: int, size: int, reason: str) -> None:
        """Raise JournalDamagedError, or record that these bytes are skipped."""
        if not self.skip_invalid:
            raise JournalDamagedError(path, offset, reason)
        if not self.quiet:
            log.error("damaged part of the journal skipped", file=path, offset=offset, bytes=size, reason=reason)
        self.given_up.append((path, offset, size))


def replay(
    disk: Disk, directory: str, mark: LogMark, visit: Callable[[Record], None], *, skip_invalid: bool = False
) -> LogMark:
    """Pass every record behind `mark` to `visit`, in order; return where the journal ends. Blocking.

    Raises: JournalDamagedError, OSError.
    """
    reading = Replay(disk, directory, mark, skip_invalid)
    for records in reading.batches():
        for record in records:
            visit(record)
    return reading.end


def _is_reused(file: File, file_id: int) -> bool:
    try:
        header = decode_header(file.pread(HEADER_SIZE, 0), file_id)
    except BadHeaderError:
        return False
    return header is not None and header.reused


def _unsynced_size(file: File, start: int) -> int:
    """Return the bytes up to the zeros that end a reused file, behind which old groups are."""
    position = start
    while block := file.pread(_BLOCK, position):
        for at in range(0, len(block), ALIGNMENT):
            if not any(block[at : at + ALIGNMENT]):
                return position + at - start
        position += len(block)
    return position - start


def _extent(file: File, start: int) -> int:
    """Return the end of the last nonzero byte from `start` on; `start` if there is none."""
    end = start
    position = start
    while block := file.pread(_BLOCK, position):
        stripped = block.rstrip(b"\0")
        if stripped:
            end = position + len(stripped)
        position += len(block)
    return end


def _has_data(file: File, start: int) -> bool:
    """Return whether any byte from `start` on is not zero."""
    position = start
    while block := file.pread(_BLOCK, position):
        if block.count(0) < len(block):
            return True
        position += len(block)
    return False


class _FileReader:
    """Reader of one file for `replay`, which keeps the results."""

    def __init__(self, replay: Replay, file: File, path: str, file_id: int, header: FileHeader, start: int) -> None:
        self._replay = replay
        self._file = file
        self._path = path
        self._file_id = file_id
        self._version = header.version
        self._reused = header.reused
        self._block = b""
        self._block_at = 0
        """Last block searched for trailers; it holds many groups if they are small."""
        self._forgotten = 0  # end of the pages that were given back
        self._start = start
        self._promised = -1
        """Position that the records of a file of the original must reach."""
        self._is_damaged = False
        """True when the rest of a file of the original was given up."""

    def _records(self, data: memoryview, base: int) -> list[Record]:
        unknown: list[int] = []
        try:
            records = list(decode_records(data, self._version, unknown))
        except BadRecordError as error:
            raise JournalDamagedError(self._path, base + error.offset, str(error)) from error
        for kind in unknown if not self._replay.quiet else ():
            log.warning("journal record of an unknown kind left out", file=self._path, kind=kind)
        self._replay.records += len(records)
        return records

    # --- files of ours

    def read_ours(self, promised: int) -> Iterator[list[Record]]:
        """Read good groups to the end, not before `promised`: this file's length when the next was begun."""
        position = self._start - self._start % ALIGNMENT
        self._replay.end = LogMark(self._file_id, position)
        while (found := self._next_good_group(position)) is not None:
            trailer, group = found
            if trailer.offset != position:
                if trailer.after_unsynced and self._next_good_group(position, synced=True) is None:
                    break
                size = trailer.offset - position
                self._replay.give_up(self._path, position, size, f"a good group stands behind it at {trailer.offset}")
            yield self._records(group, trailer.offset)
            position = trailer.offset + trailer.size
            self._replay.end = LogMark(self._file_id, position)
            if position >= self._forgotten + _FORGOTTEN:
                self._forget(position)
        self._forget(position)
        if self._reused:
            size = _unsynced_size(self._file, position)
        else:
            size = _extent(self._file, position) - position
        if position < promised:
            reason = f"it was synced up to {promised}"
            self._replay.give_up(self._path, position, promised - position, reason)
        elif size:
            self._replay.drop(self._path, position, size)

    def _forget(self, position: int) -> None:
        """Give the pages before `position` back."""
        if self._replay.forgets and position > self._forgotten:
            self._file.forget(self._forgotten, position - self._forgotten)
            self._forgotten = position

    def _next_good_group(self, start: int, *, synced: bool = False) -> tuple[Trailer, memoryview] | None:
        """Find the first good group from `start` on; with `synced`, the first written when everything before it was
        synced.

        Trailers end at multiples of 512, so no length has to be trusted.
        """
        position = start
        while True:
            block, skipped = self._block_from(position)
            if len(block) == skipped:
                return None
            position -= skipped
            place = block.find(MAGIC_PREFIX, skipped)
            while place >= 0:
                boundary = position + place + TRAILER_SIZE
                if boundary % ALIGNMENT == 0 and place + TRAILER_SIZE <= len(block):
                    found = self._good_group(block[place : place + TRAILER_SIZE], start, boundary)
                    if found is not None and not (synced and found[0].after_unsynced):
                        return found
                place = block.find(MAGIC_PREFIX, place + 1)
            position += len(block)

    def _block_from(self, position: int) -> tuple[bytes, int]:
        """Return a block that contains `position`, and the offset in it; an empty rest at the end of the file.

        Positions and ends of trailers are multiples of 512, so none spans two blocks.
        """
        skipped = position - self._block_at
        if not 0 <= skipped < len(self._block):
            self._block, self._block_at, skipped = self._file.pread(_BLOCK, position), position, 0
        return self._block, skipped

    def _good_group(self, data: bytes, start: int, boundary: int) -> tuple[Trailer, memoryview] | None:
        trailer = decode_trailer(data)
        if (
            trailer is None
            or trailer.file_id != self._file_id
            or trailer.offset < start
            or trailer.offset % ALIGNMENT
            or trailer.offset + trailer.size != boundary
        ):
            return None
        begin = trailer.offset - self._block_at
        if begin >= 0 and begin + trailer.size <= len(self._block):
            group = memoryview(self._block)[begin : begin + trailer.size]
        else:
            group = memoryview(self._file.pread(trailer.size, trailer.offset))
        return (trailer, group) if group_is_good(group, trailer) else None

    # --- files of the original

    def read_originals(self, promised: int) -> Iterator[list[Record]]:
        """Read whole records until a length of 0, or until the file is too short for one; not before `promised`."""
        self._promised = promised
        yield from self._originals()
        end = self._replay.end.offset
        if end < promised and not self._is_damaged:
            self._replay.give_up(self._path, end, promised - end, f"it was synced up to {promised}")

    def _originals(self) -> Iterator[list[Record]]:
        position = self._start
        self._replay.end = LogMark(self._file_id, position)
        size = self._file.size()
        window = b""
        base = position
        while position < size:
            window, base = self._file.pread(_BLOCK, position), position
            whole, stop = self._whole_records(memoryview(window), position, size)
            if whole:
                yield self._records(memoryview(window)[:whole], base)
                position += whole
                self._replay.end = LogMark(self._file_id, position)
                if not stop:
                    continue
            if stop:
                return
            # A single record or padding that is longer than a block.
            length, word = _LENGTHS.unpack_from(window)
            if length == PADDING_MASK:
                position += 8 + word
            else:
                yield self._records(memoryview(self._file.pread(4 + length, position)), position)
                position += 4 + length
            self._replay.end = LogMark(self._file_id, position)

    def _whole_records(self, window: memoryview, base: int, size: int) -> tuple[int, bool]:
        """Return how many bytes of `window`, which begins at `base`, are whole records, and whether the file ends
        there.
        """
        position = 0
        end = len(window)
        at_end = base + end >= size
        while position < end:
            if end - position < 8:
                if at_end:
                    self._tail(base + position, size)
                return position, at_end
            length, word = _LENGTHS.unpack_from(window, position)
            if length == 0:
                return position, True
            if length == PADDING_MASK and self._version >= 5:
                if word < 0:
                    self._damaged(base + position, size, f"padding of {word} bytes")
                    return position, True
                stop = position + 8 + word
            elif length < RECORD_LENGTH_MIN:
                self._damaged(base + position, size, f"a record of {length} bytes")
                return position, True
            else:
                stop = position + 4 + length
            if base + stop > size:
                self._tail(base + position, size)
                return position, True
            if stop > end:
                return position, False
            position = stop
        return position, at_end

    def _tail(self, offset: int, size: int) -> None:
        if offset >= self._promised and _extent(self._file, offset) > offset:
            self._replay.drop(self._path, offset, size - offset)

    def _damaged(self, offset: int, size: int, reason: str) -> None:
        self._is_damaged = True
        self._replay.give_up(self._path, offset, size - offset, reason)


assert RUN_SIZE_MAX <= _BLOCK

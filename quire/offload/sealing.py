"""Checksums of every byte of a Parquet file, kept in the file itself, and checked before a decoder sees the bytes.

    PAR1 | row group 0 | row group 1 | ... | seal | footer | size of the footer, 4 | PAR1

    seal      for each row group: first byte, 8, crc32c up to the next one's or the seal, 4; then number of row groups,
              4; crc32c of all from the footer on, 4; crc32c of the seal up to here, 4; QSEA

All numbers are little-endian. Readers of Parquet find the footer by its size, and everything else by the footer, so
they never look at the seal. It is there because pyarrow does not raise for some damaged footers, but ends the process,
which may be a broker.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from struct import Struct
from typing import IO, Final

import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from quire.offload.errors import OffloadedLedgerError

MAGIC: Final = b"QSEA"
_PARQUET: Final = b"PAR1"
_GROUP: Final = Struct("<QI")
_COUNTS: Final = Struct("<II")
_CHECKED: Final = Struct("<I4s")
_END: Final = Struct("<I4s")
FOOTER_MAX: Final = 64 << 20
"""Bytes of a footer above which it is damaged: a ledger of 100 GB has one of 16 MB."""


def seal(file: IO[bytes]) -> None:
    """Insert the seal into a whole Parquet file that is open for reading and writing."""
    metadata = pq.read_metadata(pa.PythonFile(file, mode="r"))
    starts = [0]
    for number in range(1, metadata.num_row_groups):
        group = metadata.row_group(number)
        starts.append(min(_first_byte(group.column(column)) for column in range(group.num_columns)))
    size = file.seek(0, os.SEEK_END)
    file.seek(size - _END.size)
    length, _ = _END.unpack(file.read(_END.size))
    stop = size - _END.size - length
    file.seek(stop)
    footer = file.read()
    entries = b""
    for start, after in zip(starts, [*starts[1:], stop], strict=True):
        file.seek(start)
        entries += _GROUP.pack(start, crc32c(file.read(after - start)))
    entries += _COUNTS.pack(len(starts), crc32c(footer))
    file.seek(stop)
    file.write(entries + _CHECKED.pack(crc32c(entries), MAGIC) + footer)


def _first_byte(column: pq.ColumnChunkMetaData) -> int:
    found: int = column.dictionary_page_offset or column.data_page_offset
    return found


class SealedFile(io.RawIOBase):
    """A Parquet file for a decoder, which gets checked bytes only: the footer, and one row group at a time. Blocking.

    Everything else reads as zeros: a decoder asks for the end of a file at first, and uses of that the footer only."""

    def __init__(self, path: Path) -> None:
        """Open a file and check its footer. Raises OffloadedLedgerError."""
        self._path = path
        self._file = -1
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._open()
        except OSError as error:
            self.close()
            raise OffloadedLedgerError(f"{path} cannot be opened: {error.strerror}") from None
        except OffloadedLedgerError:
            self.close()
            raise

    def _open(self) -> None:
        self._at = 0
        self._size = os.fstat(self._file).st_size
        length, magic = _END.unpack(self._exactly(self._size - _END.size, _END.size))
        if magic != _PARQUET or length > FOOTER_MAX:
            raise self._damaged("its end is not that of a Parquet file")
        self._footer_at = self._size - _END.size - length
        self._footer = self._exactly(self._footer_at, length + _END.size)
        tail_at = self._footer_at - _CHECKED.size - _COUNTS.size
        tail = self._exactly(tail_at, _COUNTS.size + _CHECKED.size)
        count, footer_crc = _COUNTS.unpack_from(tail)
        seal_crc, magic = _CHECKED.unpack_from(tail, _COUNTS.size)
        if magic != MAGIC:
            raise self._damaged("it has no checksums")
        self._groups_end = tail_at - count * _GROUP.size
        groups = self._exactly(self._groups_end, count * _GROUP.size)
        if crc32c(groups + tail[: _COUNTS.size]) != seal_crc or crc32c(self._footer) != footer_crc:
            raise self._damaged("its footer is damaged")
        self._groups = list(_GROUP.iter_unpack(groups))
        self._loaded_at, self._loaded = 0, b""

    def close(self) -> None:
        """Close the file. Idempotent."""
        if not self.closed and self._file >= 0:
            os.close(self._file)
        super().close()

    @property
    def groups(self) -> int:
        """Return the number of row groups."""
        return len(self._groups)

    def load(self, number: int) -> None:
        """Read a row group in place of the one before, and check it. Raises OffloadedLedgerError."""
        self.unload()
        start, checksum = self._groups[number]
        stop = self._groups[number + 1][0] if number + 1 < len(self._groups) else self._groups_end
        found = self._exactly(start, stop - start)
        if crc32c(found) != checksum:
            raise self._damaged(f"row group {number} is damaged")
        self._loaded_at, self._loaded = start, found

    def unload(self) -> None:
        """Forget the row group."""
        self._loaded_at, self._loaded = 0, b""

    def _exactly(self, at: int, size: int) -> bytes:
        """Return bytes of the file. Raises OffloadedLedgerError: it has fewer, or cannot be read."""
        if at < 0 or size < 0:
            raise self._damaged("it is too short")
        parts: list[bytes] = []
        while size:
            try:
                part = os.pread(self._file, size, at)
            except OSError as error:
                raise OffloadedLedgerError(f"{self._path} cannot be read at {at}: {error.strerror}") from None
            if not part:
                raise self._damaged("it is too short")
            parts.append(part)
            at, size = at + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _damaged(self, reason: str) -> OffloadedLedgerError:
        return OffloadedLedgerError(f"{self._path} cannot be opened: {reason}: restore it, or offload the ledger again")

    # For the decoder

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        stop = self._size if size is None or size < 0 else min(self._at + size, self._size)
        start, self._at = self._at, max(stop, self._at)
        loaded = start - self._loaded_at
        if loaded >= 0 and stop <= self._loaded_at + len(self._loaded):
            return self._loaded[loaded : loaded + stop - start]
        if start >= self._footer_at:
            return self._footer[start - self._footer_at : stop - self._footer_at]
        return bytes(max(0, self._footer_at - start)) + self._footer[: max(0, stop - self._footer_at)]

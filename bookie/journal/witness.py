"""A witness beside the journal: up to where it was synced, so that damage at its end is not taken for an unsynced tail.

A group that is not good, with nothing good behind it, looks alike whether a power cut tore it before its sync or something damaged
it after it was acknowledged; a file that was cut, or the newest file that is missing, looks like one that was never written. Two small
files in the journal's folder, written in turn at most `EVERY_S` behind the syncs, tell these apart: replay refuses what ends
before the place that they name. The last tenth of a second before a crash is not witnessed; a group per sync would cost a second sync.

    file   "QUIREJSY"(8) number(8) fileId(8) offset(8) crc32c(4)      = 36 bytes, zeros up to 512; the crc covers 0..32
           number counts the witnesses written, the greatest good one counts; the journal was synced up to `offset` of `fileId`

BookKeeper's programs ignore the files. Where its bookie has served the folder since, lastMark is ahead of the witness, which then
says nothing.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from crc32c import crc32c

from bookie.journal.format import LogMark
from quire.world.doors import Disk, File

NAMES: Final = ("quire-synced.a", "quire-synced.b")
EVERY_S: Final = 0.1
_MAGIC: Final = b"QUIREJSY"
_WITNESS: Final = Struct("!8sqqq")
_CRC: Final = Struct("!I")
_SIZE: Final = 512


def encode_witness(number: int, mark: LogMark) -> bytes:
    """512 bytes."""
    head = _WITNESS.pack(_MAGIC, number, *mark)
    return (head + _CRC.pack(crc32c(head))).ljust(_SIZE, b"\0")


def decode_witness(data: bytes) -> tuple[int, LogMark] | None:
    """Number and mark, None if these are not the bytes of a witness.

    >>> decode_witness(encode_witness(3, LogMark(7, 1024)))
    (3, LogMark(file_id=7, offset=1024))
    """
    if len(data) < _WITNESS.size + _CRC.size:
        return None
    magic, number, file_id, offset = _WITNESS.unpack_from(data)
    if magic != _MAGIC or _CRC.unpack_from(data, _WITNESS.size)[0] != crc32c(data[: _WITNESS.size]):
        return None
    return number, LogMark(file_id, offset)


def read_witness(disk: Disk, directory: str) -> tuple[LogMark | None, list[str]]:
    """What is proved to be there, None if nothing is; and the witness files that are damaged or missing beside another. Blocking."""
    names = disk.names(directory)
    found = {name: decode_witness(disk.read(f"{directory}/{name}")) for name in NAMES if name in names}
    good = [each for each in found.values() if each is not None]
    bad = [name for name in NAMES if found.get(name) is None] if found else []
    return (max(good)[1] if good else None), bad


class WitnessWriter:
    """Keeps the two files. Blocking; one caller at a time."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._paths = [f"{directory}/{name}" for name in NAMES]
        self._number = 0
        self._files: list[File] = []

    def begin(self, mark: LogMark) -> None:
        """Write both anew: the journal goes on in a new file, which is there. Durable on return. OSError."""
        for path in self._paths:
            if self._disk.exists(path):
                known = decode_witness(self._disk.read(path))
                self._number = max(self._number, known[0] if known else 0)
        for path in self._paths:
            self._number += 1
            self._disk.write_atomic(path, encode_witness(self._number, mark))
        self._files = [self._disk.open(path) for path in self._paths]

    def record(self, mark: LogMark) -> None:
        """The journal is synced up to `mark`. Durable on return. OSError: the other file still stands for what was before."""
        self._number += 1
        self._files[self._number % 2].pwritev_sync([encode_witness(self._number, mark)], 0)

    def close(self) -> None:
        files, self._files = self._files, []
        for file in files:
            file.close()

"""Format of an index file of one ledger, `<hex>/<hex>/<hex ledger id>.idx`. Pure. All integers big-endian and signed.

    header, 1024 bytes
        0     "BKLE"
        4     int32  version: 0 = without explicit LAC, 1 = current
        8     int32  length of the master key, then the key
              int32  state: bit 0 is set if the ledger is fenced
              int32  version 1: length of the explicit LAC package, 0 for none, then the package
              zeros
    locations, from 1024 on
        int64 location of entry 0, of entry 1, ...; 0 for an entry that is not here

The original writes pages of `pageSize` bytes, which may end beyond the last entry. Its bookie may have been killed
while it extended the file, so an odd end is not a location.

Source: BookKeeper's FileInfo, LedgerEntryPage, IndexPersistenceMgr.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct, error, unpack_from
from typing import Final

from bookie.errors import StorageDamagedError

INDEX_HEADER_LENGTH: Final = 1024
LOCATION_LENGTH: Final = 8
SUFFIX: Final = ".idx"
PAGE_LENGTH: Final = 8192
"""The original's default `pageSize`: written files end at a multiple of it."""
_MAGIC: Final = b"BKLE"
_VERSION: Final = 1
_INT: Final = Struct("!i")
_HEAD: Final = Struct("!4sii")
_FENCED: Final = 1
_LAC_LENGTH_MIN: Final = 16
"""Ledger id and entry id of a LAC package; its digest follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexHeader:
    """Facts of a ledger in the header of its index file. `explicit_lac`: a LAC package with its digest."""

    master_key: bytes = b""
    fenced: bool = False
    explicit_lac: bytes | None = None

    def encode(self) -> bytes:
        """Return the header. StorageDamagedError if it does not fit."""
        lac = self.explicit_lac or b""
        data = _HEAD.pack(_MAGIC, _VERSION, len(self.master_key)) + self.master_key
        data += _INT.pack(_FENCED if self.fenced else 0) + _INT.pack(len(lac)) + lac
        if len(data) > INDEX_HEADER_LENGTH:
            raise StorageDamagedError(f"key and explicit LAC of a ledger do not fit into a header of {len(data)} bytes")
        return data.ljust(INDEX_HEADER_LENGTH, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> IndexHeader:
        """Decode the first bytes of an index file. StorageDamagedError if they are not a header."""
        try:
            magic, version, key_length = _HEAD.unpack_from(data)
            if magic != _MAGIC:
                raise StorageDamagedError(f"an index file begins with {magic!r}, not with {_MAGIC!r}")
            if not 0 <= version <= _VERSION:
                raise StorageDamagedError(f"the index file has version {version}; known are 0 and {_VERSION}")
            at = _HEAD.size
            key, at = _field(data, at, key_length, "master key")
            (state,) = _INT.unpack_from(data, at)
            at += _INT.size
            lac = b""
            if version >= 1:
                (lac_length,) = _INT.unpack_from(data, at)
                lac, at = _field(data, at + _INT.size, lac_length, "explicit LAC")
        except error:
            raise StorageDamagedError(f"the header of an index file ends after {len(data)} bytes") from None
        if lac and len(lac) < _LAC_LENGTH_MIN:
            raise StorageDamagedError(f"the explicit LAC of an index file has {len(lac)} bytes")
        return cls(master_key=key, fenced=bool(state & _FENCED), explicit_lac=lac or None)


def _field(data: bytes, at: int, length: int, what: str) -> tuple[bytes, int]:
    if not 0 <= length <= min(len(data), INDEX_HEADER_LENGTH) - at:
        raise StorageDamagedError(f"the {what} of an index file has {length} bytes")
    return data[at : at + length], at + length


def index_path(ledger_id: int) -> str:
    """Return the path of a ledger's index file, relative to the folder `current`.

    >>> index_path(0), index_path(0x1234), index_path(1 << 40)
    ('0/0/0.idx', '12/34/1234.idx', '0/0/10000000000.idx')
    """
    return f"{ledger_id >> 8 & 0xFF:x}/{ledger_id & 0xFF:x}/{ledger_id:x}{SUFFIX}"


def ledger_of(folders: str, name: str) -> int:
    """Return the ledger of an index file by its name and its two folders, -1 if it is another file.

    >>> ledger_of("12/34", "1234.idx"), ledger_of("12/35", "1234.idx"), ledger_of("0/0", "0.idx.tmp")
    (4660, -1, -1)
    """
    stem, dot, suffix = name.partition(".")
    if f"{dot}{suffix}" != SUFFIX or not is_hex(stem):
        return -1
    ledger_id = int(stem, 16)
    return ledger_id if ledger_id < 1 << 63 and index_path(ledger_id) == f"{folders}/{name}" else -1


def is_hex(name: str) -> bool:
    """Return whether a name is a number in lower-case hexadecimal digits."""
    return bool(name) and not name.strip("0123456789abcdef")


def locations(data: bytes, first: int) -> Iterator[tuple[int, int]]:
    """Yield entry id and location of each entry in bytes that begin with the location of entry `first`."""
    count = len(data) // LOCATION_LENGTH
    for entry_id, location in enumerate(unpack_from(f"!{count}q", data), first):
        if location:
            yield entry_id, location

"""Format of an entry on the wire, in the journal and in the entry log, and its digests.

    ledgerId(8) entryId(8) LAC(8) length(8) digest(d) payload          big-endian, signed
    length = payload bytes of the ledger up to and including this entry
    digest covers the 32 bytes before it, then the payload

    type     number  d   content                                    Source: BookKeeper's DigestManager family
    CRC32    1       8   zlib's crc32 in the low half
    HMAC     2       20  HMAC-SHA1, key = SHA1("mac" + password)
    CRC32C   3       4   Castagnoli (Pulsar's choice, and ours)
    DUMMY    4       0   nothing

Master key = SHA1("ledger" + password), 20 bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from enum import IntEnum
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from quire.wire.bookkeeper.errors import DigestMismatchError, MalformedError

METADATA_LENGTH = 32
MASTER_KEY_LENGTH = 20
KEYS_MAX = 64
"""Passwords whose keys are cached: all ledgers of a broker have the same one, and share its keys."""
_METADATA = Struct("!qqqq")
_LAC_PACKAGE = Struct("!qq")

Buffer = bytes | bytearray | memoryview


class DigestType(IntEnum):
    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


DIGEST_TYPES = {
    "CRC32": DigestType.CRC32,
    "MAC": DigestType.HMAC,
    "CRC32C": DigestType.CRC32C,
    "DUMMY": DigestType.DUMMY,
}
"""Digest types by their names in configurations and on command lines."""
DIGEST_LENGTH = {DigestType.CRC32: 8, DigestType.HMAC: 20, DigestType.CRC32C: 4, DigestType.DUMMY: 0}


class EntryHeader(NamedTuple):
    """Header of an entry.

    `lac` is the last add confirmed known to the writer when it sent the entry; `length` in payload bytes.
    """

    ledger_id: int
    entry_id: int
    lac: int
    length: int


@lru_cache(KEYS_MAX)
def master_key(password: bytes) -> bytes:
    """Return the key that proves knowledge of the ledger's password to a bookie."""
    return hashlib.sha1(b"ledger" + password).digest()


def read_header(entry: Buffer) -> EntryHeader:
    """Return the four numbers at the head of an entry; MalformedError if it is too short. Checks no digest."""
    if len(entry) < METADATA_LENGTH:
        raise MalformedError(f"an entry of {len(entry)} bytes is shorter than its {METADATA_LENGTH} byte header")
    return EntryHeader(*_METADATA.unpack_from(entry))


@lru_cache(KEYS_MAX)
def _mac_key(password: bytes) -> bytes:
    return hashlib.sha1(b"mac" + password).digest()


@lru_cache(64)
def digest_of(digest_type: DigestType, password: bytes = b"") -> Digest:
    """The digest of ledgers with that password: nearly all of them have the same, and share one."""
    return Digest(digest_type, password)


class Digest:
    """Seals and opens entries. Never changed once it is made."""

    __slots__ = ("_mac_key", "length", "overhead", "type")

    def __init__(self, digest_type: DigestType, password: bytes = b"") -> None:
        self.type = digest_type
        self.length = DIGEST_LENGTH[digest_type]
        self.overhead = METADATA_LENGTH + self.length
        """Bytes before the payload."""
        self._mac_key = _mac_key(password)

    def compute(self, metadata: bytes, payload: Buffer) -> bytes:
        """Return the digest of an entry with these 32 metadata bytes and this payload."""
        match self.type:
            case DigestType.CRC32C:
                return crc32c(payload, crc32c(metadata)).to_bytes(4, "big")
            case DigestType.CRC32:
                return zlib.crc32(payload, zlib.crc32(metadata)).to_bytes(8, "big")
            case DigestType.HMAC:
                mac = hmac.new(self._mac_key, metadata, "sha1")
                mac.update(payload)
                return mac.digest()
            case DigestType.DUMMY:
                return b""

    def seal(self, ledger_id: int, entry_id: int, lac: int, length: int, payload: Buffer) -> bytes:
        """Return the bytes before `payload` in the entry."""
        metadata = _METADATA.pack(ledger_id, entry_id, lac, length)
        return metadata + self.compute(metadata, payload)

    def open(self, ledger_id: int, entry_id: int, entry: memoryview) -> memoryview:
        """Return the payload of a whole entry; DigestMismatchError if it is another entry, or damaged."""
        overhead = self.overhead
        if len(entry) < overhead:
            raise DigestMismatchError(f"entry {ledger_id}:{entry_id}: {len(entry)} bytes are too few")
        metadata = bytes(entry[:METADATA_LENGTH])
        found_ledger, found_entry, _, _ = _METADATA.unpack(metadata)
        payload = entry[overhead:]
        if self.compute(metadata, payload) != bytes(entry[METADATA_LENGTH:overhead]):
            raise DigestMismatchError(f"entry {ledger_id}:{entry_id}: the digest does not match")
        if found_ledger != ledger_id or found_entry != entry_id:
            raise DigestMismatchError(f"asked for entry {ledger_id}:{entry_id}, got {found_ledger}:{found_entry}")
        return payload

    def seal_lac(self, ledger_id: int, lac: int) -> bytes:
        """Return an explicit LAC package: ledgerId, LAC, digest over both."""
        package = _LAC_PACKAGE.pack(ledger_id, lac)
        return package + self.compute(package, b"")

    def open_lac(self, ledger_id: int, package: Buffer) -> int:
        """Return the LAC in an explicit LAC package; DigestMismatchError."""
        if len(package) != 16 + self.length:
            raise DigestMismatchError(f"LAC of ledger {ledger_id}: {len(package)} bytes")
        head = bytes(package[:16])
        found_ledger, lac = _LAC_PACKAGE.unpack(head)
        if found_ledger != ledger_id or self.compute(head, b"") != bytes(package[16:]):
            raise DigestMismatchError(f"LAC of ledger {ledger_id}: the digest does not match")
        return int(lac)

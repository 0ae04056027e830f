"""The bookie protocol, version 2: fixed headers, no protobuf. Pure: bytes in, values out.

    request   frameLength(4) header(4) body            frameLength counts what follows it; at most FRAME_MAX
    header    version(8 bits) opcode(8 bits) flags(16 bits)
    ADD       masterKey(20) entry
    READ      ledgerId(8) entryId(8) [masterKey(20) with DO_FENCING]       entryId -1: the last entry
    BATCH     ledgerId(8) entryId(8) requestId(8) maxCount(4) maxSize(8) [masterKey(20)]
    response  frameLength(4) header(4) rc(4) ledgerId(8) entryId(8) [entry]
    BATCH     frameLength(4) header(4) rc(4) ledgerId(8) entryId(8) requestId(8) ( size(4) entry )*

Source: BookKeeper's BookieProtoEncoding; bytes seen in tests/golden/bookkeeper/wire.

What travels is a sequence of `Frame`s: either a buffer that holds one or more whole frames end to end, or a pair
(head, payload) for one big ADD whose payload is sent from where it lies, without a join.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple, TypeAlias

from quire.wire.bookkeeper.entry import Buffer

VERSION = 2
FRAME_MAX = 5 * 1024 * 1024
JOIN_MAX = 16 * 1024
"""Payloads above this are not copied into a joined buffer."""

DO_FENCING = 1
RECOVERY_ADD = 2
HIGH_PRIORITY = 4


class Opcode(IntEnum):
    ADD = 1
    READ = 2
    AUTH = 3
    READ_LAC = 4
    WRITE_LAC = 5
    GET_BOOKIE_INFO = 6
    BATCH_READ = 7


class Rc(IntEnum):
    """Result codes of version 2."""

    OK = 0
    NO_LEDGER = 1
    NO_ENTRY = 2
    BAD_REQUEST = 100
    IO = 101
    UNAUTHORIZED = 102
    BAD_VERSION = 103
    FENCED = 104
    READ_ONLY = 105
    TOO_MANY_REQUESTS = 106
    UNKNOWN_LEDGER_STATE = 107


Frame: TypeAlias = Buffer | tuple[bytes, Buffer]

_ADD_HEAD = Struct("!iI20s")
ADD_OVERHEAD = _ADD_HEAD.size  # 4 + 4 + 20 = 28 bytes before the entry
_READ = Struct("!iIqq")
_FENCE_READ = Struct("!iIqq20s")
_BATCH_READ = Struct("!iIqqqiq")
_RESPONSE = Struct("!iIiqq")
RESPONSE_SIZE = _RESPONSE.size  # 4 + 4 + 4 + 8 + 8 = 28 bytes


def header(opcode: Opcode, flags: int = 0) -> int:
    return VERSION << 24 | opcode << 16 | flags


_ADD_RESPONSE_HEADER = header(Opcode.ADD)


class ReadRequest(NamedTuple):
    ledger_id: int
    entry_id: int
    flags: int
    master_key: bytes | None


class BatchReadRequest(NamedTuple):
    ledger_id: int
    entry_id: int
    request_id: int
    count_max: int
    size_max: int
    flags: int


def add_head(entry_size: int, key: bytes, flags: int = 0) -> bytes:
    """What goes before an entry of `entry_size` bytes in an ADD frame: 28 bytes."""
    return _ADD_HEAD.pack(24 + entry_size, header(Opcode.ADD, flags), key)


def read_request(ledger_id: int, entry_id: int, flags: int = 0, key: bytes | None = None) -> bytes:
    if flags & DO_FENCING:
        assert key is not None, "a fencing read carries the master key"
        return _FENCE_READ.pack(40, header(Opcode.READ, flags), ledger_id, entry_id, key)
    return _READ.pack(20, header(Opcode.READ, flags), ledger_id, entry_id)


def batch_read_request(ledger_id: int, entry_id: int, request_id: int, count_max: int, size_max: int) -> bytes:
    return _BATCH_READ.pack(40, header(Opcode.BATCH_READ), ledger_id, entry_id, request_id, count_max, size_max)


def add_responses(rc: int, ledger_id: int, entry_ids: Sequence[int]) -> bytes:
    """Answers to a run of adds, end to end."""
    pack = _RESPONSE.pack
    head = _ADD_RESPONSE_HEADER
    return b"".join([pack(24, head, rc, ledger_id, entry_id) for entry_id in entry_ids])


def response_head(opcode: Opcode, rc: int, ledger_id: int, entry_id: int, body_size: int = 0) -> bytes:
    """What goes before the body of a response; `body_size` bytes follow."""
    return _RESPONSE.pack(24 + body_size, header(opcode), rc, ledger_id, entry_id)

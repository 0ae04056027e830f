"""Decoder of requests of version 2, for a bookie. Pure.

Nearly all requests are ADDs. ADDs of one run are decoded together, and ADDs of one size a block at a time.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from quire.wire.bookkeeper.entry import MASTER_KEY_LENGTH, METADATA_LENGTH, Buffer
from quire.wire.bookkeeper.run import Run
from quire.wire.bookkeeper.v2_messages import (
    ADD_OVERHEAD,
    BATCH_READ,
    DO_FENCING,
    FENCE_READ,
    FRAME_MAX,
    HEAD,
    ID,
    ID_MAX,
    LENT_MAX,
    READ,
    RUN_FIRST_MAX,
    SIZE,
    VERSION,
    AuthRequest,
    BatchReadRequest,
    Frame,
    Malformed,
    Opcode,
    Rc,
    ReadRequest,
    Request,
    Unsupported,
)

_IDS = Struct("!qq")
_BATCH_BODY = Struct("!qqqiq")
# The common bytes of all ADDs of a run are adjacent: header(4) masterKey(20) ledgerId(8).
_ADD_PREFIX = Struct("!i32sq")
_ADD_LENGTH_MIN: Final = 24 + METADATA_LENGTH
_OPCODE_MASK: Final = 0xFFFF0000
_ADD_OPCODE: Final = VERSION << 24 | 1 << 16
_BLOCK: Final = 16
"""Adjacent ADDs of one size examined at once."""


def decode_requests(frame: Frame) -> list[Request]:
    """Decode the requests in a buffer of whole frames, or in one (head, payload) pair, in order. Never raises."""
    requests: list[Request] = []
    if isinstance(frame, tuple):
        requests.append(_big_add(*frame))
        return requests
    view = memoryview(frame)
    end = len(view)
    position = 0
    while position < end:
        if end - position < 8:
            requests.append(Malformed(f"{end - position} bytes are left of a frame"))
            break
        length, head = HEAD.unpack_from(view, position)
        stop = position + 4 + length
        if not 4 <= length <= FRAME_MAX:
            requests.append(Malformed(f"a frame of {length} bytes; 4 to {FRAME_MAX} are allowed"))
            break
        if stop > end:
            requests.append(Malformed(f"a frame of {length} bytes, of which {end - position - 4} are there"))
            break
        if head & _OPCODE_MASK == _ADD_OPCODE and length >= _ADD_LENGTH_MIN:
            position = _decode_adds(view, position, end, requests)
            continue
        request = _decode_other(view[position + 4 : stop], head)
        requests.append(request)
        if type(request) is Malformed:
            break
        position = stop
    return requests


def _decode_adds(view: memoryview, position: int, end: int, requests: list[Request]) -> int:
    """Decode the run of ADDs that begins at `position`, where a whole ADD frame is; return where it ends."""
    length: int
    length, prefix, first = _ADD_PREFIX.unpack_from(view, position)
    ledger_id = ID.unpack_from(prefix, 24)[0]
    flags = prefix[2] << 8 | prefix[3]
    if not 0 <= first <= RUN_FIRST_MAX or not 0 <= ledger_id <= ID_MAX:
        if 0 <= first <= ID_MAX and 0 <= ledger_id <= ID_MAX:
            stop = position + 4 + length
            entry = bytes(view[position + 28 : stop])
            requests.append(
                Run(ledger_id, first, [SIZE.pack(length - 24), entry], length - 20, [0], prefix[4:24], flags)
            )
            return stop
        requests.append(Unsupported(Opcode.ADD, ledger_id, first, Rc.BAD_REQUEST))
        return position + 4 + length
    key = prefix[4:24]
    if length > LENT_MAX:
        stop = position + 4 + length
        parts: list[Buffer] = [SIZE.pack(length - 24), view[position + 28 : stop]]
        requests.append(Run(ledger_id, first, parts, length - 20, [0], key, flags))
        return stop
    pieces: list[Buffer] = []
    add = pieces.append
    offsets: list[int] = []
    unpack = _ADD_PREFIX.unpack_from
    expected = first
    size = 0
    joined_length = 0
    entry_size = b""
    next_try = first
    last_start = end - 4 - _ADD_LENGTH_MIN
    while position <= last_start:
        length, found, entry_id = unpack(view, position)
        if entry_id != expected or found != prefix:
            break
        if length != joined_length:
            if not _ADD_LENGTH_MIN <= length <= LENT_MAX:
                break
            joined_length = length
            entry_size = SIZE.pack(length - 24)
        elif expected >= next_try:
            entries = _blocks_of_adds(view, position, end, prefix, expected, length)
            next_try = expected + len(entries) + _BLOCK
            if entries:
                block: list[Buffer] = [entry_size] * (2 * len(entries))
                block[1::2] = entries
                pieces += block
                offsets += range(size, size + len(entries) * (length - 20), length - 20)
                size += len(entries) * (length - 20)
                expected += len(entries)
                position += len(entries) * (length + 4)
                continue
        stop = position + 4 + length
        if stop > end:
            break
        add(entry_size)
        add(view[position + 28 : stop])
        offsets.append(size)
        size += length - 20
        expected += 1
        position = stop
    requests.append(Run(ledger_id, first, [b"".join(pieces)], size, offsets, key, flags))
    return position


def _blocks_of_adds(view: memoryview, position: int, end: int, prefix: bytes, first: int, length: int) -> list[bytes]:
    """Return the entries of as many whole blocks of ADDs of the run as begin at `position`, all `length` bytes long.

    There is no loop per entry.
    """
    prefixes, bodies = _block_of_adds(length)
    size = prefixes.size
    same = (length, prefix) * _BLOCK
    entries: list[bytes] = []
    while position + size <= end:
        found = prefixes.unpack_from(view, position)
        ids = found[2::3]
        if ids != tuple(range(first, first + _BLOCK)) or found[::3] != same[::2] or found[1::3] != same[1::2]:
            break
        entries += bodies.unpack_from(view, position)
        position += size
        first += _BLOCK
    return entries


@lru_cache(maxsize=64)
def _block_of_adds(length: int) -> tuple[Struct, Struct]:
    """Return structures for _BLOCK ADDs of `length` each: the bytes before their entries, as in _ADD_PREFIX, and the
    entries.
    """
    return Struct("!" + f"i32sq{length - 40}x" * _BLOCK), Struct(f"28x{length - 24}s" * _BLOCK)


def _big_add(head: bytes, payload: Buffer) -> Request:
    """Decode one ADD whose entry's head is at the end of `head`, and whose payload is in a buffer of its own."""
    if len(head) < _ADD_PREFIX.size:
        return Malformed(f"an ADD's head of {len(head)} bytes")
    length, prefix, entry_id = _ADD_PREFIX.unpack_from(head)
    ledger_id = ID.unpack_from(prefix, 24)[0]
    if length != len(head) + len(payload) - 4 or length > FRAME_MAX:
        return Malformed(f"a frame of {length} bytes in {len(head)} and {len(payload)}")
    if prefix[0] != VERSION or prefix[1] != Opcode.ADD:
        return Malformed("only an ADD may come in two pieces")
    if length < _ADD_LENGTH_MIN or not 0 <= entry_id <= ID_MAX or not 0 <= ledger_id <= ID_MAX:
        return Unsupported(Opcode.ADD, ledger_id, entry_id, Rc.BAD_REQUEST)
    flags = prefix[2] << 8 | prefix[3]
    parts: list[Buffer] = [SIZE.pack(length - 24) + head[ADD_OVERHEAD:], payload]
    return Run(ledger_id, entry_id, parts, length - 20, [0], prefix[4:24], flags)


def _decode_other(body: memoryview, head: int) -> Request:
    """Decode a frame that is not a valid ADD; `body` begins with the header."""
    version, opcode, flags = head >> 24, head >> 16 & 0xFF, head & 0xFFFF
    if version != VERSION:
        return Unsupported(opcode, -1, -1, Rc.BAD_VERSION)
    key: bytes | None = None
    match opcode:
        case Opcode.READ:
            if len(body) < READ.size - 4:
                return Malformed(f"a READ of {len(body)} bytes")
            ledger_id, entry_id = _IDS.unpack_from(body, 4)
            if flags & DO_FENCING:
                if len(body) < FENCE_READ.size - 4:
                    return Malformed(f"a fencing READ of {len(body)} bytes")
                key = bytes(body[20 : 20 + MASTER_KEY_LENGTH])
            if ledger_id < 0 or (key is not None and ledger_id > ID_MAX):
                return Unsupported(opcode, ledger_id, entry_id, Rc.BAD_REQUEST)
            return ReadRequest(ledger_id, entry_id, flags, key)
        case Opcode.BATCH_READ:
            if len(body) < BATCH_READ.size - 4:
                return Malformed(f"a BATCH_READ of {len(body)} bytes")
            ledger_id, entry_id, request_id, count_max, size_max = _BATCH_BODY.unpack_from(body, 4)
            if flags & DO_FENCING:
                if len(body) < BATCH_READ.size - 4 + MASTER_KEY_LENGTH:
                    return Malformed(f"a fencing BATCH_READ of {len(body)} bytes")
                key = bytes(body[BATCH_READ.size - 4 : BATCH_READ.size - 4 + MASTER_KEY_LENGTH])
            if key is not None and ledger_id > ID_MAX:
                return Unsupported(opcode, ledger_id, entry_id, Rc.BAD_REQUEST)
            return BatchReadRequest(ledger_id, entry_id, request_id, count_max, size_max, flags, key)
        case Opcode.AUTH:
            return AuthRequest(bytes(body[4:]))
        case Opcode.ADD:
            if len(body) < 4 + MASTER_KEY_LENGTH + _IDS.size:
                return Malformed(f"an ADD of {len(body)} bytes")
            ledger_id, entry_id = _IDS.unpack_from(body, 4 + MASTER_KEY_LENGTH)
            return Unsupported(opcode, ledger_id, entry_id, Rc.BAD_REQUEST)
        case _:
            return Unsupported(opcode, -1, -1, Rc.BAD_REQUEST)

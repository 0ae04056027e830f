"""Decoder of requests of version 3, for a bookie. Pure.

An ADD_ENTRY as every known client encodes it, fields in the order of their numbers (V: a varint):

    length(4) 0a hl 08 03 10 02 18 txn(V) [20 priority(V)]                  header
              aa 06 size(V) 08 ledger(V) 10 entry(V)                        addRequest
                            1a 14 key(20) 22 size(V) entry [28 01] [a0 06 01]

Such frames, and READ_ENTRYs of that kind, are decoded without protobuf. Consecutive adds differ in txn and entry id
only, so a run of them costs one comparison per entry. Any other encoding is left to protobuf, at some 10 times the
cost.
"""

from __future__ import annotations

import re
from functools import lru_cache
from struct import Struct
from typing import Final

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from quire.wire.bookkeeper import BookkeeperProtocol_pb2 as pb
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import MASTER_KEY_LENGTH, METADATA_LENGTH, Buffer
from quire.wire.bookkeeper.run import Run
from quire.wire.bookkeeper.v2 import (
    DO_FENCING,
    FRAME_MAX,
    HIGH_PRIORITY,
    ID_MAX,
    LENT_MAX,
    RECOVERY_ADD,
    RUN_FIRST_MAX,
    Rc,
)
from quire.wire.bookkeeper.v3_messages import (
    DEFERRED_SYNC,
    FIRST_BYTE,
    VERSION,
    AddRequest,
    AuthRequest,
    BookieInfoRequest,
    ForceRequest,
    ListOfEntriesRequest,
    NotVersion3,
    Operation,
    ReadLacRequest,
    ReadRequest,
    Request,
    StartTlsRequest,
    Unsupported,
    WriteLacRequest,
)
from quire.wire.bookkeeper.varints import decode, decode_signed, encode, endless

_LENGTH: Final = Struct("!i")
_IDS: Final = Struct("!qq")
_V: Final = rb"([\x80-\xff]{0,9}[\x00-\x7f])"
_ADD: Final = re.compile(
    rb"\x0a(.)\x08\x03\x10\x02\x18%b(?:\x20%b)?\xaa\x06%b\x08%b\x10%b\x1a\x14(.{20})\x22%b" % ((_V,) * 6), re.DOTALL
)
_READ: Final = re.compile(
    rb"\x0a(.)\x08\x03\x10\x01\x18%b(?:\x20%b)?\xa2\x06%b\x08%b\x10%b"
    rb"(?:\x1a\x14(.{20}))?(?:\x20%b)?(?:\x28%b)?(?:\xa0\x06([\x01\x02]))?" % ((_V,) * 7),
    re.DOTALL,
)
_ADD_TAILS: Final = {
    b"": (0, 0),
    b"\x28\x01": (0, DEFERRED_SYNC),
    b"\xa0\x06\x01": (RECOVERY_ADD, 0),
    b"\x28\x01\xa0\x06\x01": (RECOVERY_ADD, DEFERRED_SYNC),
}
"""Fields that may follow the entry in an ADD_ENTRY: flags and write flags."""
_TAIL_MAX: Final = 5
_OPERATION_AT: Final = 9
"""Offset of the operation in a frame that begins as drawn above."""
_ADD_MIN: Final = 4 + 8 + 3 + 4 + 22 + 2 + METADATA_LENGTH


def is_version_3(frame: v2.Frame) -> bool:
    """Return whether the first frame of a connection belongs to version 3."""
    head = frame[0] if isinstance(frame, tuple) else frame
    return len(head) > 4 and head[4] == FIRST_BYTE


def decode_requests(frame: v2.Frame) -> list[Request]:
    """Decode the requests in a buffer of whole frames, or in one (head, payload) pair, in order. Never raises."""
    if isinstance(frame, tuple):
        frame = b"".join(frame)
    requests: list[Request] = []
    view = memoryview(frame)
    end = len(view)
    position = 0
    while position < end:
        length = _LENGTH.unpack_from(view, position)[0] if end - position >= 4 else -1
        stop = position + 4 + length
        if not 4 <= length <= FRAME_MAX or stop > end:
            requests.append(NotVersion3(position, f"a frame of {length} bytes; {end - position - 4} are there"))
            break
        operation = view[position + _OPERATION_AT] if length > _OPERATION_AT - 4 else 0
        if operation == Operation.ADD_ENTRY and length >= _ADD_MIN - 4:
            after_adds = _decode_adds(view, position, stop, end, requests)
            if after_adds:
                position = after_adds
                continue
        request = _decode_read(view, position + 4, stop) if operation == Operation.READ_ENTRY else None
        request = request or _decode_other(view[position + 4 : stop], position)
        requests.append(request)
        if type(request) is NotVersion3:
            break
        position = stop
    return requests


def decode_request(frame: v2.Frame) -> Request:
    """Decode the request in one whole frame, with its length field; an add is a run of one."""
    (request,) = decode_requests(frame)
    return request


@lru_cache(maxsize=64)
def _shape(before: int, txn: int, between: int, entry_id: int, after: int) -> Struct:
    """Return the head of an ADD_ENTRY with fields of these sizes, and the two ids at the start of its entry."""
    return Struct(f"!{before}s{txn}s{between}s{entry_id}s{after}sqq")


def _decode_adds(view: memoryview, position: int, stop: int, end: int, requests: list[Request]) -> int:
    """Decode the run of ADD_ENTRYs that begins with the frame from `position` to `stop`.

    Return where it ends, 0 if the frame is not of the usual kind.
    """
    head: tuple[int, bytes, int, int] | None = None
    """Ledger id, key, flags and write flags of the run."""
    first = 0
    pieces: list[Buffer] = []
    offsets: list[int] = []
    txns: list[bytes] = []
    size = 0
    expected = 0
    while True:
        match = _ADD.match(view, position + 4, stop)
        if match is None:
            break
        header_size, _, priority, inner_size, ledger, entry_id, key, entry_size = match.groups()
        start = match.end()
        length = decode(entry_size)
        tail_at = start + length
        tail = bytes(view[tail_at:stop]) if 0 <= stop - tail_at <= _TAIL_MAX else None
        known_tail = None if tail is None else _ADD_TAILS.get(tail)
        if (
            known_tail is None
            or length < METADATA_LENGTH
            or header_size[0] != max(match.end(2), match.end(3)) - position - 6
            or decode(inner_size) != stop - match.end(4)
        ):
            break
        ids = _IDS.unpack_from(view, start)
        if ids != (decode_signed(ledger), decode_signed(entry_id)):
            break
        if not 0 <= ids[0] <= ID_MAX or not 0 <= ids[1] <= RUN_FIRST_MAX:
            break
        flags = known_tail[0] | (HIGH_PRIORITY if priority is not None and decode(priority) else 0)
        if length > LENT_MAX:
            if head is None:
                parts: list[Buffer] = [_LENGTH.pack(length), view[start:tail_at]]
                run = Run(*ids, parts, 4 + length, [0], key, flags)
                requests.append(AddRequest(run, [match.group(2)], known_tail[1]))
                return stop
            break
        if head is None:
            head = (ids[0], key, flags, known_tail[1])
            first = expected = ids[1]
        elif ids[1] != expected or (ids[0], key, flags, known_tail[1]) != head:
            break
        # The following frames that differ only in txn and entry id.
        frame_size = stop - position
        head_at = position
        unpack = _shape(
            match.start(2) - head_at,
            match.end(2) - match.start(2),
            match.start(6) - match.end(2),
            match.end(6) - match.start(6),
            start - match.end(6),
        ).unpack_from
        look = unpack(view, position)
        before, between, after, ledger_id = look[0], look[2], look[4], look[5]
        entry_from, entry_to = start - head_at, tail_at - head_at
        size_field = _LENGTH.pack(length)
        entry_ids = endless(expected)
        add, add_offset, add_txn = pieces.append, offsets.append, txns.append
        while position + frame_size <= end:
            found_before, txn, found_between, found_id, found_after, found_ledger, inner_id = unpack(view, position)
            if (
                inner_id != expected
                or found_id != next(entry_ids)
                or found_before != before
                or found_between != between
                or found_after != after
                or found_ledger != ledger_id
                or txn[-1] > 127
                or (tail and view[position + entry_to : position + frame_size] != tail)
            ):
                break
            add_txn(txn)
            add(size_field)
            add(view[position + entry_from : position + entry_to])
            add_offset(size)
            size += 4 + length
            expected += 1
            position += frame_size
        if position == head_at:
            break  # (an id with more bytes than needed: left to protobuf)
        if end - position < _ADD_MIN or view[position + _OPERATION_AT] != Operation.ADD_ENTRY:
            break
        stop = position + 4 + _LENGTH.unpack_from(view, position)[0]
        if stop > end or stop - position < _ADD_MIN:
            break
    if head is None or not offsets:
        return 0
    ledger_id, key, flags, write_flags = head
    run = Run(ledger_id, first, [b"".join(pieces)], size, offsets, key, flags)
    requests.append(AddRequest(run, txns, write_flags))
    return position


def _decode_read(view: memoryview, position: int, stop: int) -> Request | None:
    """Decode a READ_ENTRY of the usual kind, whose body is from `position` to `stop`; None if it is of another kind."""
    match = _READ.fullmatch(view, position, stop)
    if match is None:
        return None
    header_size, txn, priority, inner_size, ledger, entry, key, previous, timeout, flag = match.groups()
    if header_size[0] != max(match.end(2), match.end(3)) - position - 2 or decode(inner_size) != stop - match.end(4):
        return None
    flags = HIGH_PRIORITY if priority is not None and decode(priority) else 0
    if flag == b"\x01":
        flags |= DO_FENCING
    ledger_id = decode_signed(ledger)
    if ledger_id < 0 or (flags & DO_FENCING and ledger_id > ID_MAX):
        return Unsupported(Operation.READ_ENTRY, decode(txn), Rc.BAD_REQUEST, ledger_id, decode_signed(entry))
    return ReadRequest(
        decode(txn),
        ledger_id,
        decode_signed(entry),
        flags,
        key,
        None if previous is None else decode_signed(previous),
        None if timeout is None else decode(timeout),
        flag == b"\x02",
    )


_BODY_OF: Final = {
    Operation.READ_ENTRY: "readRequest",
    Operation.ADD_ENTRY: "addRequest",
    Operation.AUTH: "authRequest",
    Operation.WRITE_LAC: "writeLacRequest",
    Operation.READ_LAC: "readLacRequest",
    Operation.GET_BOOKIE_INFO: "getBookieInfoRequest",
    Operation.START_TLS: "startTLSRequest",
    Operation.FORCE_LEDGER: "forceLedgerRequest",
    Operation.GET_LIST_OF_ENTRIES: "getListOfEntriesOfLedgerRequest",
}


_MAKE_LEDGERS: Final = (Operation.ADD_ENTRY, Operation.WRITE_LAC)
"""Operations that make a ledger known to a bookie, as a fencing read does."""


def _unknown_operation(header: Message) -> int:
    """Return the number of an operation that protobuf does not know; 0 if the header has none."""
    fields = UnknownFieldSet(header)
    numbers = [fields[i].data for i in range(len(fields)) if fields[i].field_number == 2]
    return next((number for number in numbers if isinstance(number, int)), 0)


def _decode_other(body: memoryview, position: int) -> Request:
    """Decode a frame's body with protobuf; the frame is at `position`."""
    request = pb.Request()
    try:
        request.ParseFromString(bytes(body))
    except DecodeError as error:
        return NotVersion3(position, f"not a message: {error}")
    header = request.header
    txn_id = header.txnId
    if not header.HasField("txnId"):
        return NotVersion3(position, "a message without a transaction id")
    if not header.HasField("operation"):
        return Unsupported(_unknown_operation(header), txn_id, Rc.BAD_REQUEST, -1, -1)
    operation = Operation(header.operation)
    field = _BODY_OF.get(operation)
    if operation is Operation.START_TLS and header.version == VERSION:
        return StartTlsRequest(txn_id)
    if field is None or not request.HasField(field):
        return Unsupported(operation, txn_id, Rc.BAD_REQUEST, -1, -1)
    content = getattr(request, field)
    ledger_id = getattr(content, "ledgerId", 0)
    entry_id = getattr(content, "entryId", -1)
    if header.version != VERSION:
        return Unsupported(operation, txn_id, Rc.BAD_VERSION, ledger_id, entry_id)
    if not content.IsInitialized() or ledger_id < 0:
        return Unsupported(operation, txn_id, Rc.BAD_REQUEST, ledger_id, entry_id)
    flags = HIGH_PRIORITY if header.priority else 0
    if ledger_id > ID_MAX and (
        operation in _MAKE_LEDGERS or getattr(content, "flag", 0) == pb.ReadRequest.FENCE_LEDGER
    ):
        return Unsupported(operation, txn_id, Rc.BAD_REQUEST, ledger_id, entry_id)
    match operation:
        case Operation.READ_ENTRY:
            return _read_of(txn_id, request.readRequest, flags)
        case Operation.ADD_ENTRY:
            return _add_of(txn_id, request.addRequest, flags)
        case Operation.AUTH:
            return AuthRequest(txn_id, content.authPluginName, content.payload)
        case Operation.WRITE_LAC:
            return WriteLacRequest(txn_id, ledger_id, content.lac, content.masterKey, content.body)
        case Operation.READ_LAC:
            return ReadLacRequest(txn_id, ledger_id)
        case Operation.GET_BOOKIE_INFO:
            return BookieInfoRequest(txn_id, content.requested)
        case Operation.FORCE_LEDGER:
            return ForceRequest(txn_id, ledger_id)
        case _:
            return ListOfEntriesRequest(txn_id, ledger_id)


def _read_of(txn_id: int, read: pb.ReadRequest, flags: int) -> ReadRequest:
    flag = read.flag if read.HasField("flag") else 0
    return ReadRequest(
        txn_id,
        read.ledgerId,
        read.entryId,
        flags | (DO_FENCING if flag == pb.ReadRequest.FENCE_LEDGER else 0),
        read.masterKey if read.HasField("masterKey") else None,
        read.previousLAC if read.HasField("previousLAC") else None,
        read.timeOut if read.HasField("timeOut") else None,
        flag == pb.ReadRequest.ENTRY_PIGGYBACK,
    )


def _add_of(txn_id: int, add: pb.AddRequest, flags: int) -> Request:
    """Decode an ADD_ENTRY of another shape, or with ids that are not its entry's."""
    entry = add.body
    if len(entry) < METADATA_LENGTH or _IDS.unpack_from(entry) != (add.ledgerId, add.entryId):
        return Unsupported(Operation.ADD_ENTRY, txn_id, Rc.BAD_REQUEST, add.ledgerId, add.entryId)
    if not 0 <= add.entryId <= ID_MAX:
        return Unsupported(Operation.ADD_ENTRY, txn_id, Rc.BAD_REQUEST, add.ledgerId, add.entryId)
    if len(add.masterKey) != MASTER_KEY_LENGTH:
        return Unsupported(Operation.ADD_ENTRY, txn_id, Rc.BAD_REQUEST, add.ledgerId, add.entryId)
    if add.HasField("flag"):
        flags |= RECOVERY_ADD
    part = _LENGTH.pack(len(entry)) + entry
    run = Run(add.ledgerId, add.entryId, [part], len(part), [0], add.masterKey, flags)
    return AddRequest(run, [encode(txn_id)], add.writeFlags)

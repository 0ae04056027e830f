"""Decoder of answers of version 3, for a client. Pure.

    ADD_ENTRY    length(4) 0a hl 08 03 10 02 18 txn(V) 10 status(V)                          header, status
                           aa 06 size 08 status(V) 10 ledger(V) 18 entry(V)                  addResponse
    READ_ENTRY   length(4) 0a hl 08 03 10 01 18 txn(V) 10 status(V)
                           a2 06 size(V) 08 status(V) 10 ledger(V) 18 entry(V)
                           [22 size(V) entry] [28 maxLAC(V)] [30 time(V)]

Such frames are decoded without protobuf, answers to adds by the run. All other frames are left to protobuf.
"""

from __future__ import annotations

import re
from functools import lru_cache
from struct import Struct
from typing import Final

from google.protobuf.message import DecodeError

from quire.wire.bookkeeper import BookkeeperProtocol_pb2 as pb
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.errors import MalformedError
from quire.wire.bookkeeper.v2 import FRAME_MAX, Rc
from quire.wire.bookkeeper.v3_messages import (
    RC_OF,
    AuthAnswer,
    BookieInfo,
    Done,
    EntryList,
    LacAnswer,
    Operation,
    Outcome,
    Reply,
    Response,
)
from quire.wire.bookkeeper.varints import decode, decode_signed, endless

_LENGTH: Final = Struct("!i")
_V: Final = rb"([\x80-\xff]{0,9}[\x00-\x7f])"
_ADD: Final = re.compile(rb"\x0a(.)\x08\x03\x10\x02\x18%b\x10%b\xaa\x06(.)\x08%b\x10%b\x18%b" % ((_V,) * 5), re.DOTALL)
_READ: Final = re.compile(
    rb"\x0a(.)\x08\x03\x10\x01\x18%b\x10%b\xa2\x06%b\x08%b\x10%b\x18%b(?:\x22%b)?" % ((_V,) * 7), re.DOTALL
)
_READ_TAIL: Final = re.compile(rb"(?:\x28%b)?(?:\x30%b)?" % (_V, _V))
_NO_ENTRY: Final = memoryview(b"")
_OPERATION_AT: Final = 9


def decode_responses(chunk: Buffer) -> list[Response]:
    """Decode the answers in a buffer of whole frames, in order; answers with one code to adds of consecutive entries
    become one value.

    MalformedError if the bytes are invalid: close the connection. Entries are views of `chunk`.
    """
    responses: list[Response] = []
    view = memoryview(chunk)
    end = len(view)
    position = 0
    while position < end:
        length = _LENGTH.unpack_from(view, position)[0] if end - position >= 4 else -1
        stop = position + 4 + length
        if not 4 <= length <= FRAME_MAX or stop > end:
            raise MalformedError(f"a frame of {length} bytes; {end - position - 4} are there")
        operation = view[position + _OPERATION_AT] if length > _OPERATION_AT - 4 else 0
        if operation == Operation.ADD_ENTRY:
            after_acks = _decode_acks(view, position, stop, end, responses)
            if after_acks:
                position = after_acks
                continue
        reply = _decode_read(view, position + 4, stop) if operation == Operation.READ_ENTRY else None
        responses.append(reply or _decode_other(view[position + 4 : stop]))
        position = stop
    return responses


def decode_response(frame: Buffer) -> Response:
    """Decode the answer in one whole frame, with its length field; MalformedError."""
    (response,) = decode_responses(frame)
    return response


@lru_cache(maxsize=64)
def _shape(before: int, txn: int, between: int, entry_id: int) -> Struct:
    return Struct(f"!{before}s{txn}s{between}s{entry_id}s")


def _decode_acks(view: memoryview, position: int, stop: int, end: int, responses: list[Response]) -> int:
    """Decode the run of answers to adds that begins with the frame from `position` to `stop`.

    Return where it ends, 0 if the frame is not of the usual kind.
    """
    match = _ADD.fullmatch(view, position + 4, stop)
    if match is None:
        return 0
    header_size, _, outer, inner_size, inner, ledger, entry = match.groups()
    if header_size[0] != match.end(2) - position - 6 or inner_size[0] != stop - match.end(4):
        return 0
    first = decode_signed(entry)
    frame_size = stop - position
    shape = _shape(match.start(2) - position, match.end(2) - match.start(2), match.start(7) - match.end(2), len(entry))
    rc = RC_OF.get(decode(outer) or decode(inner), Rc.IO)
    last = first
    count = (end - position) // frame_size
    if count > 1 and first >= 0:
        before, _, between, _ = shape.unpack_from(view, position)
        acks = shape.iter_unpack(view[position : position + count * frame_size])
        last -= 1
        for (found_before, txn, found_between, found), expected in zip(acks, endless(first), strict=False):
            if found != expected or found_between != between or found_before != before or txn[-1] > 127:
                break
            last += 1
        last = max(first, last)
    responses.append(v2.AddAcks(rc, decode_signed(ledger), first, last))
    return position + (last - first + 1) * frame_size


def _decode_read(view: memoryview, position: int, stop: int) -> Reply | None:
    """Decode an answer to READ_ENTRY of the usual kind, whose body is from `position` to `stop`; None if it is of
    another kind.
    """
    match = _READ.match(view, position, stop)
    if match is None:
        return None
    header_size, txn, outer, inner_size, inner, ledger, entry_id, size = match.groups()
    start = match.end()
    tail_at = start if size is None else start + decode(size)
    if header_size[0] != match.end(2) - position - 2 or decode(inner_size) != stop - match.end(4) or tail_at > stop:
        return None
    tail = _READ_TAIL.fullmatch(view, tail_at, stop)
    if tail is None:
        return None
    rc = RC_OF.get(decode(outer) or decode(inner), Rc.IO)
    max_lac, updated = tail.groups()
    return Reply(
        decode(txn),
        v2.ReadResponse(
            rc,
            decode_signed(ledger),
            decode_signed(entry_id),
            view[start:tail_at],
            None if max_lac is None else decode_signed(max_lac),
            None if updated is None else decode_signed(updated),
        ),
    )


_BODY_OF: Final = {
    Operation.READ_ENTRY: "readResponse",
    Operation.ADD_ENTRY: "addResponse",
    Operation.AUTH: "authResponse",
    Operation.WRITE_LAC: "writeLacResponse",
    Operation.READ_LAC: "readLacResponse",
    Operation.GET_BOOKIE_INFO: "getBookieInfoResponse",
    Operation.FORCE_LEDGER: "forceLedgerResponse",
    Operation.GET_LIST_OF_ENTRIES: "getListOfEntriesOfLedgerResponse",
}


def _decode_other(body: memoryview) -> Response:
    """Decode a frame's body with protobuf; MalformedError."""
    response = pb.Response()
    try:
        response.ParseFromString(bytes(body))
    except DecodeError as error:
        raise MalformedError(f"not a message of version 3: {error}") from error
    header = response.header
    txn_id = header.txnId
    if not header.HasField("txnId"):
        raise MalformedError("an answer without a transaction id")
    # A code that protobuf does not know counts as absent.
    outer = RC_OF[response.status] if response.HasField("status") else Rc.IO
    operation = header.operation if header.HasField("operation") else 0
    field = _BODY_OF.get(operation)  # type: ignore[call-overload]
    if field is None or not response.HasField(field):
        return Reply(txn_id, v2.OtherResponse(operation, outer, -1, -1))
    content = getattr(response, field)
    if operation == Operation.AUTH:
        return Reply(txn_id, AuthAnswer(outer, content.authPluginName, content.payload))
    inner = RC_OF[content.status] if content.HasField("status") else Rc.IO
    rc = outer if outer is not Rc.OK else inner
    if operation == Operation.ADD_ENTRY:
        return v2.AddAcks(rc, content.ledgerId, content.entryId, content.entryId)
    return Reply(txn_id, _outcome(operation, rc, content))


def _outcome(operation: int, rc: Rc, content: object) -> Outcome:
    match operation, content:
        case Operation.READ_ENTRY, pb.ReadResponse() as read:
            return v2.ReadResponse(
                rc,
                read.ledgerId,
                read.entryId,
                memoryview(read.body) if read.HasField("body") else _NO_ENTRY,
                read.maxLAC if read.HasField("maxLAC") else None,
                read.lacUpdateTimestamp if read.HasField("lacUpdateTimestamp") else None,
            )
        case Operation.WRITE_LAC, pb.WriteLacResponse() as written:
            return Done(rc, written.ledgerId)
        case Operation.FORCE_LEDGER, pb.ForceLedgerResponse() as forced:
            return Done(rc, forced.ledgerId)
        case Operation.READ_LAC, pb.ReadLacResponse() as lac:
            return LacAnswer(
                rc,
                lac.ledgerId,
                lac.lacBody if lac.HasField("lacBody") else None,
                memoryview(lac.lastEntryBody) if lac.HasField("lastEntryBody") else None,
            )
        case Operation.GET_BOOKIE_INFO, pb.GetBookieInfoResponse() as info:
            return BookieInfo(
                rc,
                info.totalDiskCapacity if info.HasField("totalDiskCapacity") else None,
                info.freeDiskSpace if info.HasField("freeDiskSpace") else None,
            )
        case _, pb.GetListOfEntriesOfLedgerResponse() as listed:
            return EntryList(rc, listed.ledgerId, listed.availabilityOfEntriesOfLedger)
        case _:
            raise AssertionError(f"operation {operation} has no answer of its own")

"""Encoder of answers of version 3, for a bookie. Pure.

The bytes are the same as the original's: fields in the order of their numbers, as drawn in `v3_response_decoder`.
Answers to adds (by the run) and to reads (around the entry, which is not copied) are encoded without protobuf; all
others by protobuf.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, cast

from quire.wire.bookkeeper import BookkeeperProtocol_pb2 as pb
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.v2 import Rc
from quire.wire.bookkeeper.v3_messages import STATUS_OF, Operation
from quire.wire.bookkeeper.varints import encode, encode_all

_LENGTH: Final = Struct("!i")


def _status(rc: int) -> bytes:
    return encode(STATUS_OF[Rc(rc)])


def add_responses(rc: int, ledger_id: int, entry_ids: Sequence[int], txns: Sequence[bytes]) -> bytes:
    """Return answers to a run of adds, end to end; `txns` as in `AddRequest`."""
    status = _status(rc)
    inner = b"\x08%b\x10%b\x18" % (status, encode(ledger_id))
    pieces: list[bytes] = []
    shape = (-1, -1)
    before = between = b""
    for txn, entry_id in zip(txns, encode_all(entry_ids), strict=True):
        if shape != (len(txn), len(entry_id)):
            shape = (len(txn), len(entry_id))
            between = b"\x10%b\xaa\x06%c%b" % (status, len(inner) + len(entry_id), inner)
            length = 7 + len(txn) + len(between) + len(entry_id)
            before = b"%b\x0a%c\x08\x03\x10\x02\x18" % (_LENGTH.pack(length), 5 + len(txn))
        pieces += (before, txn, between, entry_id)
    return b"".join(pieces)


def read_response(
    txn_id: int,
    rc: int,
    ledger_id: int,
    entry_id: int,
    entry: Buffer | None = None,
    *,
    max_lac: int | None = None,
    lac_update_ms: int | None = None,
) -> list[Buffer]:
    """Return the answer to a READ_ENTRY, whose parts end to end are one frame; `entry` is not copied."""
    status = _status(rc)
    txn = encode(txn_id)
    inner = b"\x08%b\x10%b\x18%b" % (status, encode(ledger_id), encode(entry_id))
    tail = b"" if max_lac is None else b"\x28" + encode(max_lac)
    if lac_update_ms is not None:
        tail += b"\x30" + encode(lac_update_ms)
    inner_size = len(inner) + len(tail)
    if entry is not None:
        size = len(entry)
        inner += b"\x22" + encode(size)
        inner_size = len(inner) + size + len(tail)
    head = b"\x0a%c\x08\x03\x10\x01\x18%b\x10%b\xa2\x06%b%b" % (5 + len(txn), txn, status, encode(inner_size), inner)
    length = len(head) + inner_size - len(inner)
    if entry is None:
        return [b"".join((_LENGTH.pack(length), head, tail))]
    parts: list[Buffer] = [_LENGTH.pack(length) + head, entry]
    if tail:
        parts.append(tail)
    return parts


def _frame(response: pb.Response) -> bytes:
    body = response.SerializeToString()
    return _LENGTH.pack(len(body)) + body


def _response(operation: Operation, txn_id: int, rc: int) -> pb.Response:
    response = pb.Response()
    header = response.header
    header.version = pb.VERSION_THREE
    header.operation = cast("pb.OperationType", operation)
    header.txnId = txn_id
    response.status = cast("pb.StatusCode", STATUS_OF[Rc(rc)])
    return response


def auth_response(txn_id: int, rc: int, plugin: str, payload: bytes) -> bytes:
    response = _response(Operation.AUTH, txn_id, rc)
    response.authResponse.authPluginName = plugin
    response.authResponse.payload = payload
    return _frame(response)


def write_lac_response(txn_id: int, rc: int, ledger_id: int) -> bytes:
    response = _response(Operation.WRITE_LAC, txn_id, rc)
    response.writeLacResponse.status = response.status
    response.writeLacResponse.ledgerId = ledger_id
    return _frame(response)


def read_lac_response(
    txn_id: int, rc: int, ledger_id: int, explicit_lac_body: Buffer | None = None, last_entry: Buffer | None = None
) -> bytes:
    response = _response(Operation.READ_LAC, txn_id, rc)
    read_lac = response.readLacResponse
    read_lac.status = response.status
    read_lac.ledgerId = ledger_id
    if explicit_lac_body is not None:
        read_lac.lacBody = bytes(explicit_lac_body)
    if last_entry is not None:
        read_lac.lastEntryBody = bytes(last_entry)
    return _frame(response)


def bookie_info_response(txn_id: int, rc: int, total: int | None = None, free: int | None = None) -> bytes:
    """Return the answer with disk sizes in bytes; None for sizes not requested."""
    response = _response(Operation.GET_BOOKIE_INFO, txn_id, rc)
    info = response.getBookieInfoResponse
    info.status = response.status
    if total is not None:
        info.totalDiskCapacity = total
    if free is not None:
        info.freeDiskSpace = free
    return _frame(response)


def start_tls_response(txn_id: int, rc: int) -> bytes:
    """Return the answer to START_TLS. A refusal has only a code; consent also has an empty answer."""
    response = _response(Operation.START_TLS, txn_id, rc)
    if rc == Rc.OK:
        response.startTLSResponse.SetInParent()
    return _frame(response)


def force_response(txn_id: int, rc: int, ledger_id: int) -> bytes:
    response = _response(Operation.FORCE_LEDGER, txn_id, rc)
    response.forceLedgerResponse.status = response.status
    response.forceLedgerResponse.ledgerId = ledger_id
    return _frame(response)


def list_of_entries_response(txn_id: int, rc: int, ledger_id: int, availability: bytes | None = None) -> bytes:
    response = _response(Operation.GET_LIST_OF_ENTRIES, txn_id, rc)
    listed = response.getListOfEntriesOfLedgerResponse
    listed.status = response.status
    listed.ledgerId = ledger_id
    if availability is not None:
        listed.availabilityOfEntriesOfLedger = availability
    return _frame(response)


def refusal(operation: int, txn_id: int, rc: int, ledger_id: int = -1, entry_id: int = -1) -> bytes:
    """Return a refusal `rc` of any request; it includes the operation's own answer if the ledger of the request is
    known.
    """
    match operation:
        case Operation.ADD_ENTRY if ledger_id != -1:
            return add_responses(rc, ledger_id, [entry_id], [encode(txn_id)])
        case Operation.READ_ENTRY if ledger_id != -1:
            return b"".join(read_response(txn_id, rc, ledger_id, entry_id))
        case Operation.WRITE_LAC if ledger_id != -1:
            return write_lac_response(txn_id, rc, ledger_id)
        case Operation.READ_LAC if ledger_id != -1:
            return read_lac_response(txn_id, rc, ledger_id)
        case Operation.FORCE_LEDGER if ledger_id != -1:
            return force_response(txn_id, rc, ledger_id)
        case Operation.GET_LIST_OF_ENTRIES if ledger_id != -1:
            return list_of_entries_response(txn_id, rc, ledger_id)
        case _:
            # Without protobuf: an operation that protobuf does not know must be repeated too.
            header = b"\x08\x03\x10%b\x18%b" % (encode(operation), encode(txn_id))
            body = b"\x0a%c%b\x10%b" % (len(header), header, _status(rc))
            return _LENGTH.pack(len(body)) + body

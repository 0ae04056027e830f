"""Encoder of requests of version 3, for a client. Pure.

The bytes are the same as those of the original's client: fields in the order of their numbers, as drawn in
`v3_request_decoder`. Adds and reads are encoded without protobuf, an add at the cost of copying its entry; all other
requests by protobuf.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, cast

from quire.wire.bookkeeper import BookkeeperProtocol_pb2 as pb
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import METADATA_LENGTH, Buffer
from quire.wire.bookkeeper.v2 import DO_FENCING, HIGH_PRIORITY, JOIN_MAX, RECOVERY_ADD
from quire.wire.bookkeeper.v3_messages import PRIORITY, Operation
from quire.wire.bookkeeper.varints import consecutive, encode, encode_all

_LENGTH: Final = Struct("!i")
_JOINED_MAX: Final = METADATA_LENGTH + 20 + JOIN_MAX
"""Entries above this are not copied into a joined buffer."""


def _frame(request: pb.Request) -> bytes:
    body = request.SerializeToString()
    return _LENGTH.pack(len(body)) + body


def _request(operation: Operation, txn_id: int) -> pb.Request:
    request = pb.Request()
    header = request.header
    header.version = pb.VERSION_THREE
    header.operation = cast("pb.OperationType", operation)
    header.txnId = txn_id
    return request


ADD_EXTRA: Final = 128
"""Upper bound of the difference in length between an ADD_ENTRY and the ADD of version 2 with the same entry."""


def add_requests(
    first_txn_id: int,
    ledger_id: int,
    entry_ids: Sequence[int],
    key: bytes,
    entries: Sequence[Buffer],
    flags: int = 0,
    write_flags: int = 0,
) -> list[v2.Frame]:
    """Return ADD_ENTRYs of entries of one ledger, with consecutive transaction ids. Big entries are not copied."""
    priority = b"\x20" + encode(PRIORITY) if flags & HIGH_PRIORITY else b""
    tail = (b"\x28" + encode(write_flags) if write_flags else b"") + (b"\xa0\x06\x01" if flags & RECOVERY_ADD else b"")
    ledger = b"\x08" + encode(ledger_id) + b"\x10"
    key_field = b"\x1a" + encode(len(key)) + key + b"\x22"
    frames: list[v2.Frame] = []
    pieces: list[Buffer] = []
    shape = (-1, -1, -1)
    before = between = after = b""
    txns = consecutive(first_txn_id, len(entries))
    for txn, entry_id, entry in zip(txns, encode_all(entry_ids), entries, strict=True):
        size = len(entry)
        if shape != (size, len(txn), len(entry_id)):
            shape = (size, len(txn), len(entry_id))
            after = key_field + encode(size)
            inner = len(ledger) + len(entry_id) + len(after) + size + len(tail)
            between = b"%b\xaa\x06%b%b" % (priority, encode(inner), ledger)
            header = 5 + len(txn) + len(priority)
            length = 2 + header + len(between) - len(priority) - len(ledger) + inner
            before = b"%b\x0a%c\x08\x03\x10\x02\x18" % (_LENGTH.pack(length), header)
        if size > _JOINED_MAX:
            if pieces:
                frames.append(b"".join(pieces))
                pieces = []
            head = b"".join((before, txn, between, entry_id, after))
            frames.append(b"".join((head, entry, tail)) if tail else (head, entry))
            continue
        pieces += (before, txn, between, entry_id, after, entry, tail)
    if pieces:
        frames.append(b"".join(pieces))
    return frames


def read_request(
    txn_id: int,
    ledger_id: int,
    entry_id: int,
    flags: int = 0,
    key: bytes | None = None,
    *,
    previous_lac: int | None = None,
    timeout_ms: int | None = None,
    piggyback: bool = False,
) -> bytes:
    """Return a READ_ENTRY; a long poll with `previous_lac`."""
    txn = encode(txn_id)
    priority = b"\x20" + encode(PRIORITY) if flags & HIGH_PRIORITY else b""
    read = b"\x08" + encode(ledger_id) + b"\x10" + encode(entry_id)
    if flags & DO_FENCING:
        assert key is not None, "a fencing read needs the master key"
        assert not piggyback, "a fencing read cannot be a long poll"
    if key is not None:
        read += b"\x1a" + encode(len(key)) + key
    if previous_lac is not None:
        read += b"\x20" + encode(previous_lac)
    if timeout_ms is not None:
        read += b"\x28" + encode(timeout_ms)
    if flags & DO_FENCING:
        read += b"\xa0\x06\x01"
    elif piggyback:
        read += b"\xa0\x06\x02"
    header = b"\x08\x03\x10\x01\x18" + txn + priority
    body = b"\x0a%c%b\xa2\x06%b%b" % (len(header), header, encode(len(read)), read)
    return _LENGTH.pack(len(body)) + body


def auth_request(txn_id: int, plugin: str, payload: bytes) -> bytes:
    request = _request(Operation.AUTH, txn_id)
    request.authRequest.authPluginName = plugin
    request.authRequest.payload = payload
    return _frame(request)


def write_lac_request(txn_id: int, ledger_id: int, lac: int, key: bytes, body: bytes) -> bytes:
    """Return a WRITE_LAC. `body`: the explicit LAC package."""
    request = _request(Operation.WRITE_LAC, txn_id)
    write_lac = request.writeLacRequest
    write_lac.ledgerId = ledger_id
    write_lac.lac = lac
    write_lac.masterKey = key
    write_lac.body = body
    return _frame(request)


def read_lac_request(txn_id: int, ledger_id: int) -> bytes:
    request = _request(Operation.READ_LAC, txn_id)
    request.readLacRequest.ledgerId = ledger_id
    return _frame(request)


def bookie_info_request(txn_id: int, requested: int) -> bytes:
    """Return a GET_BOOKIE_INFO. `requested`: bits TOTAL_DISK_CAPACITY and FREE_DISK_SPACE."""
    request = _request(Operation.GET_BOOKIE_INFO, txn_id)
    request.getBookieInfoRequest.requested = requested
    return _frame(request)


def start_tls_request(txn_id: int) -> bytes:
    request = _request(Operation.START_TLS, txn_id)
    request.startTLSRequest.SetInParent()
    return _frame(request)


def force_request(txn_id: int, ledger_id: int) -> bytes:
    request = _request(Operation.FORCE_LEDGER, txn_id)
    request.forceLedgerRequest.ledgerId = ledger_id
    return _frame(request)


def list_of_entries_request(txn_id: int, ledger_id: int) -> bytes:
    request = _request(Operation.GET_LIST_OF_ENTRIES, txn_id)
    request.getListOfEntriesOfLedgerRequest.ledgerId = ledger_id
    return _frame(request)

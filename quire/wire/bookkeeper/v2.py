"""The bookie protocol, version 2: fixed headers, no protobuf. Pure: bytes in, values out.

    request   frameLength(4) header(4) body            frameLength counts what follows it; at most FRAME_MAX
    header    version(8 bits) opcode(8 bits) flags(16 bits)
    ADD       masterKey(20) entry
    READ      ledgerId(8) entryId(8) [masterKey(20) with DO_FENCING]       entryId -1: the last entry
    BATCH     ledgerId(8) entryId(8) requestId(8) maxCount(4) maxSize(8) [masterKey(20)]
    AUTH      AuthMessage (protobuf: plugin name 1, payload 2)
    response  frameLength(4) header(4) rc(4) ledgerId(8) entryId(8) [entry]
    BATCH     frameLength(4) header(4) rc(4) ledgerId(8) entryId(8) requestId(8) ( size(4) entry )*
    AUTH      frameLength(4) header(4) AuthMessage

Source: BookKeeper's BookieProtoEncoding; bytes seen in tests/golden/bookkeeper/wire.

Data is sent as a sequence of `Frame`s: either a buffer with one or more whole frames end to end, or a pair (head,
payload) for one big ADD whose payload is sent without a copy.
"""

from __future__ import annotations

from quire.wire.bookkeeper.v2_codec import (
    RAMP_MIN,
    RESPONSE_SIZE,
    add_head,
    add_responses,
    auth_response,
    batch_read_request,
    batch_response_head,
    decode_requests,
    decode_responses,
    read_request,
    response_head,
    split_entries,
)
from quire.wire.bookkeeper.v2_messages import (
    ADD_OVERHEAD,
    DO_FENCING,
    FRAME_MAX,
    HIGH_PRIORITY,
    ID_MAX,
    JOIN_MAX,
    LENT_MAX,
    ORIGINAL_FRAME_MAX,
    PULSAR_FRAME_MAX,
    RECOVERY_ADD,
    RUN_FIRST_MAX,
    VERSION,
    AddAcks,
    AuthRequest,
    AuthResponse,
    BatchReadRequest,
    BatchResponse,
    Frame,
    Malformed,
    Opcode,
    OtherResponse,
    Rc,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Unsupported,
    header,
)

__all__ = [
    "ADD_OVERHEAD",
    "DO_FENCING",
    "FRAME_MAX",
    "HIGH_PRIORITY",
    "ID_MAX",
    "JOIN_MAX",
    "LENT_MAX",
    "ORIGINAL_FRAME_MAX",
    "PULSAR_FRAME_MAX",
    "RAMP_MIN",
    "RECOVERY_ADD",
    "RESPONSE_SIZE",
    "RUN_FIRST_MAX",
    "VERSION",
    "AddAcks",
    "AuthRequest",
    "AuthResponse",
    "BatchReadRequest",
    "BatchResponse",
    "Frame",
    "Malformed",
    "Opcode",
    "OtherResponse",
    "Rc",
    "ReadRequest",
    "ReadResponse",
    "Request",
    "Response",
    "Unsupported",
    "add_head",
    "add_responses",
    "auth_response",
    "batch_read_request",
    "batch_response_head",
    "decode_requests",
    "decode_responses",
    "header",
    "read_request",
    "response_head",
    "split_entries",
]

"""The bookie protocol, version 3: protobuf messages in frames. Pure: bytes in, values out.

    frame     length(4) message                 length counts the message; at most FRAME_MAX
    message   Request or Response of BookkeeperProtocol.proto; begins with 0x0A, which no frame of version 2 does

There is no handshake. A connection is version 3 from its first frame on if that is a Request. From the first frame that
is not a Request on, it is version 2. Answers may come in any order and repeat the transaction id of their request.

Source: BookKeeper's BookieRequestHandler, PerChannelBookieClient, *ProcessorV3; bytes in tests/golden/bookkeeper/wire.
"""

from __future__ import annotations

from quire.wire.bookkeeper.v2 import FRAME_MAX
from quire.wire.bookkeeper.v3_messages import (
    DEFERRED_SYNC,
    FIRST_BYTE,
    FREE_DISK_SPACE,
    PRIORITY,
    RC_OF,
    STATUS_OF,
    TOTAL_DISK_CAPACITY,
    VERSION,
    AddRequest,
    AuthAnswer,
    AuthRequest,
    BookieInfo,
    BookieInfoRequest,
    Done,
    EntryList,
    ForceRequest,
    LacAnswer,
    ListOfEntriesRequest,
    NotVersion3,
    Operation,
    Outcome,
    ReadLacRequest,
    ReadRequest,
    Reply,
    Request,
    Response,
    StartTlsRequest,
    Unsupported,
    WriteLacRequest,
)
from quire.wire.bookkeeper.v3_request_decoder import decode_request, decode_requests, is_version_3
from quire.wire.bookkeeper.v3_requests import (
    ADD_EXTRA,
    add_requests,
    auth_request,
    bookie_info_request,
    force_request,
    list_of_entries_request,
    read_lac_request,
    read_request,
    start_tls_request,
    write_lac_request,
)
from quire.wire.bookkeeper.v3_response_decoder import decode_response, decode_responses
from quire.wire.bookkeeper.v3_responses import (
    add_responses,
    auth_response,
    bookie_info_response,
    force_response,
    list_of_entries_response,
    read_lac_response,
    read_response,
    refusal,
    start_tls_response,
    write_lac_response,
)

__all__ = [
    "ADD_EXTRA",
    "DEFERRED_SYNC",
    "FIRST_BYTE",
    "FRAME_MAX",
    "FREE_DISK_SPACE",
    "PRIORITY",
    "RC_OF",
    "STATUS_OF",
    "TOTAL_DISK_CAPACITY",
    "VERSION",
    "AddRequest",
    "AuthAnswer",
    "AuthRequest",
    "BookieInfo",
    "BookieInfoRequest",
    "Done",
    "EntryList",
    "ForceRequest",
    "LacAnswer",
    "ListOfEntriesRequest",
    "NotVersion3",
    "Operation",
    "Outcome",
    "ReadLacRequest",
    "ReadRequest",
    "Reply",
    "Request",
    "Response",
    "StartTlsRequest",
    "Unsupported",
    "WriteLacRequest",
    "add_requests",
    "add_responses",
    "auth_request",
    "auth_response",
    "bookie_info_request",
    "bookie_info_response",
    "decode_request",
    "decode_requests",
    "decode_response",
    "decode_responses",
    "force_request",
    "force_response",
    "is_version_3",
    "list_of_entries_request",
    "list_of_entries_response",
    "read_lac_request",
    "read_lac_response",
    "read_request",
    "read_response",
    "refusal",
    "start_tls_request",
    "start_tls_response",
    "write_lac_request",
    "write_lac_response",
]

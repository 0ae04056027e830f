"""Requests and answers of version 3 as values, and the relation of its status codes to result codes.

Flags are those of version 2 (`v2.DO_FENCING`, `RECOVERY_ADD`, `HIGH_PRIORITY`), whatever field they come from, so that
the same rules apply to both versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.run import Run
from quire.wire.bookkeeper.v2 import Rc

VERSION: Final = 3
FIRST_BYTE: Final = 0x0A
"""First byte of the body of every frame of version 3: field 1 of the message, with a length.

Version 2 begins with 0x02.
"""
PRIORITY: Final = 100
"""Priority of recovery's requests; ordinary ones have 0. Any priority above 0 is high."""
DEFERRED_SYNC: Final = 1
"""Write flag: the add may be answered before it is on disk; FORCE_LEDGER makes it durable."""
TOTAL_DISK_CAPACITY: Final = 1
FREE_DISK_SPACE: Final = 2
"""Bits of GET_BOOKIE_INFO for the requested values."""


class Operation(IntEnum):
    READ_ENTRY = 1
    ADD_ENTRY = 2
    RANGE_READ_ENTRY = 3
    RANGE_ADD_ENTRY = 4
    AUTH = 5
    WRITE_LAC = 6
    READ_LAC = 7
    GET_BOOKIE_INFO = 8
    START_TLS = 9
    FORCE_LEDGER = 10
    GET_LIST_OF_ENTRIES = 11


STATUS_OF: Final[Mapping[Rc, int]] = MappingProxyType(
    {
        Rc.OK: 0,
        Rc.NO_LEDGER: 402,
        Rc.NO_ENTRY: 403,
        Rc.BAD_REQUEST: 404,
        Rc.IO: 501,
        Rc.UNAUTHORIZED: 502,
        Rc.BAD_VERSION: 503,
        Rc.FENCED: 504,
        Rc.READ_ONLY: 505,
        Rc.TOO_MANY_REQUESTS: 506,
        Rc.UNKNOWN_LEDGER_STATE: 507,
    }
)
RC_OF: Final[Mapping[int, Rc]] = MappingProxyType({status: rc for rc, status in STATUS_OF.items()})
"""Result code of each status. Any other status means that the bookie failed in a special way: Rc.IO."""


# --- received by a bookie


class AddRequest(NamedTuple):
    """Consecutive ADD_ENTRYs of one ledger with the same key and flags: a run as of version 2, and what only version 3
    has. `txns[i]` is the transaction id of entry `run.first + i` as received, to be repeated in its answer.
    """

    run: Run
    txns: list[bytes]
    write_flags: int


class ReadRequest(NamedTuple):
    """Read request. `entry_id` -1: the last entry.

    With `previous_lac` it is a long poll: the answer may wait until the LAC exceeds it, `timeout_ms` at most, and has
    entry previous_lac + 1 if `piggyback`.
    """

    txn_id: int
    ledger_id: int
    entry_id: int
    flags: int
    master_key: bytes | None
    previous_lac: int | None = None
    timeout_ms: int | None = None
    piggyback: bool = False


class AuthRequest(NamedTuple):
    txn_id: int
    plugin: str
    payload: bytes


class WriteLacRequest(NamedTuple):
    """Request to store an explicit LAC. `body` is its package (entry.py)."""

    txn_id: int
    ledger_id: int
    lac: int
    master_key: bytes
    body: bytes


class ReadLacRequest(NamedTuple):
    txn_id: int
    ledger_id: int


class BookieInfoRequest(NamedTuple):
    """Request for disk sizes. `requested`: bits TOTAL_DISK_CAPACITY and FREE_DISK_SPACE."""

    txn_id: int
    requested: int


class StartTlsRequest(NamedTuple):
    txn_id: int


class ForceRequest(NamedTuple):
    txn_id: int
    ledger_id: int


class ListOfEntriesRequest(NamedTuple):
    txn_id: int
    ledger_id: int


class Unsupported(NamedTuple):
    """Request that cannot be served: answer `refusal(*unsupported)` and continue. -1 for an id it does not have."""

    operation: int
    txn_id: int
    rc: Rc
    ledger_id: int
    entry_id: int


class NotVersion3(NamedTuple):
    """The frame at `position` of the buffer is not version 3: from it on, the connection uses version 2 permanently.

    Always the last item.
    """

    position: int
    reason: str


Request: TypeAlias = (
    AddRequest
    | ReadRequest
    | AuthRequest
    | WriteLacRequest
    | ReadLacRequest
    | BookieInfoRequest
    | StartTlsRequest
    | ForceRequest
    | ListOfEntriesRequest
    | Unsupported
    | NotVersion3
)


# --- received by a client


class LacAnswer(NamedTuple):
    """Answer to READ_LAC: the explicit LAC package, and the last entry on the bookie; None for a missing one."""

    rc: int
    ledger_id: int
    explicit_lac_body: bytes | None
    last_entry: memoryview | None


class Done(NamedTuple):
    """Answer to WRITE_LAC and FORCE_LEDGER."""

    rc: int
    ledger_id: int


class BookieInfo(NamedTuple):
    """Disk sizes in bytes; None for sizes not requested."""

    rc: int
    total: int | None
    free: int | None


class EntryList(NamedTuple):
    """List of entries. `availability` is decoded by availability.py; empty unless rc is OK."""

    rc: int
    ledger_id: int
    availability: bytes


class AuthAnswer(NamedTuple):
    rc: int
    plugin: str
    payload: bytes


Outcome: TypeAlias = v2.ReadResponse | LacAnswer | Done | BookieInfo | EntryList | AuthAnswer | v2.OtherResponse
"""v2.OtherResponse (its opcode is an Operation): a refusal that has only a code."""


class Reply(NamedTuple):
    """Answer to the request with that transaction id."""

    txn_id: int
    outcome: Outcome


Response: TypeAlias = v2.AddAcks | Reply

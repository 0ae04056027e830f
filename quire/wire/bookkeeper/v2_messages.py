"""Messages of version 2 of the bookie protocol as values, and definitions shared by its codecs.

`v2` has the layout of the frames.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple, TypeAlias

from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.run import Run

VERSION = 2
FRAME_MAX = 5 * 1024 * 1024 + 64 * 1024
"""Largest frame that any part receives or sends: a message of 5 MiB plus overhead."""
ORIGINAL_FRAME_MAX = 5 * 1024 * 1024
"""nettyMaxFrameSizeBytes of an original bookie by default. It closes the connection at a larger frame."""
PULSAR_FRAME_MAX = ORIGINAL_FRAME_MAX + 10 * 1024
"""nettyMaxFrameSizeBytes in the bookkeeper.conf that comes with Pulsar: its largest message plus overhead."""
JOIN_MAX = 16 * 1024
"""Size above which senders do not copy a payload into a joined buffer."""
LENT_MAX = 128 * 1024
"""Bytes of an ADD (in version 2 its frame, in version 3 its entry) up to which it is copied out of the chunk it arrived
in, together with those of its run.

The chunk can then be filled again, and a run is handled at once. Bigger ones stay in their chunk.
"""

ID_MAX = (1 << 63) - 2
"""Highest ledger id and entry id that a bookie accepts.

With higher ones no index key would sort behind the last one of a range.
"""
RUN_FIRST_MAX = ID_MAX - (1 << 32)
"""Highest first entry id for which no buffer is long enough for a run that ends above ID_MAX; adds above it are runs of
one.
"""

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

ADD_HEAD = Struct("!iI20s")
ADD_OVERHEAD = ADD_HEAD.size  # 4 + 4 + 20 = 28 bytes before the entry
READ = Struct("!iIqq")
FENCE_READ = Struct("!iIqq20s")
BATCH_READ = Struct("!iIqqqiq")
HEAD = Struct("!iI")
ID = Struct("!q")
SIZE = Struct("!i")


def header(opcode: Opcode, flags: int = 0) -> int:
    return VERSION << 24 | opcode << 16 | flags


# --- received by a bookie


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
    master_key: bytes | None = None


class AuthRequest(NamedTuple):
    message: bytes


class Unsupported(NamedTuple):
    """A whole frame that cannot be served: answer `rc` and continue. -1 for an id that the frame does not have."""

    opcode: int
    ledger_id: int
    entry_id: int
    rc: int


class Malformed(NamedTuple):
    """Bytes of another protocol: close the connection. Always the last item."""

    reason: str


Request: TypeAlias = Run | ReadRequest | BatchReadRequest | AuthRequest | Unsupported | Malformed
"""A Run is consecutive ADDs of one ledger with the same key and flags. Its parts do not keep the received chunk alive,
except for an entry above LENT_MAX, which is a run of its own and stays in the chunk.
"""


# --- received by a client


class AddAcks(NamedTuple):
    """Answers `rc` to the adds of entries `first` to `last` (inclusive) of one ledger."""

    rc: int
    ledger_id: int
    first: int
    last: int


class ReadResponse(NamedTuple):
    """Answer to a read. `entry_id` is the requested one (-1: the last); `entry` is empty unless rc is OK.

    The other fields come with version 3 only: the LAC known to the bookie, and when it learned it, in milliseconds
    since 1970.
    """

    rc: int
    ledger_id: int
    entry_id: int
    entry: memoryview
    max_lac: int | None = None
    lac_update_ms: int | None = None


class BatchResponse(NamedTuple):
    """Answer to a batch read. `entries` are consecutive from `entry_id` on; none unless rc is OK."""

    rc: int
    ledger_id: int
    entry_id: int
    request_id: int
    entries: list[memoryview]


class AuthResponse(NamedTuple):
    message: bytes


class OtherResponse(NamedTuple):
    """Answer without a body of its own: an opcode that the bookie does not serve, or a refusal."""

    opcode: int
    rc: int
    ledger_id: int
    entry_id: int


Response: TypeAlias = AddAcks | ReadResponse | BatchResponse | AuthResponse | OtherResponse

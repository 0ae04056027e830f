"""Stored form of an index of delayed messages: one row per block, kept with the position of its subscription (pure).

    version(1) = 1    rows: ledger id(8) number of the block(8) earliest due time in ms(8) bitmap of the messages(128)

Integers are big-endian, bit i of a bitmap (least significant first) is entry 1024 n + i. A row says of each of its
messages that it has a delivery time, which never changes, so a row that is too old does no harm: messages that were
acknowledged since are left out when it is read, and those that are missing are found by reading the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

BLOCK = 1024
"""Entries per block."""
VERSION = b"\1"
_ROW = Struct(f">qqQ{BLOCK // 8}s")
ROWS_MAX = 8192
"""Rows that are stored, the first ones in the log: 1.2 MB. What is behind them is read again after a restart."""


class StoredBlock(NamedTuple):
    """Delayed messages of one block."""

    ledger_id: int
    number: int
    """Number of the block in the ledger."""
    first_due_ms: int
    """No message of the block is due earlier."""
    held: int
    """Bitmap of the messages."""


def encode_blocks(blocks: Iterable[StoredBlock]) -> bytes:
    """Return the stored form of some blocks, without the version: parts may be joined."""
    return b"".join(
        [
            _ROW.pack(ledger_id, number, first_due_ms, held.to_bytes(BLOCK // 8, "little"))
            for ledger_id, number, first_due_ms, held in blocks
        ]
    )


def is_readable(stored: bytes) -> bool:
    """Return whether this version can read it. An empty one says nothing."""
    return stored[:1] == VERSION and (len(stored) - 1) % _ROW.size == 0


def decode_blocks(stored: bytes) -> Iterator[StoredBlock]:
    """Yield the blocks of a readable index."""
    for ledger_id, number, first_due_ms, bitmap in _ROW.iter_unpack(memoryview(stored)[1:]):
        yield StoredBlock(ledger_id, number, first_due_ms, int.from_bytes(bitmap, "little"))

"""Checks of a request: master key, fence, read-only state, limits. Pure. For adds see `may_add` in adds.py.

Source: BookKeeper's ReadEntryProcessor, BatchedReadEntryProcessor, WriteLacProcessorV3,
LedgerDescriptorImpl.
"""

from __future__ import annotations

from typing import Final

from bookie.errors import LedgerInLimboError, NoEntryError, NoLedgerError
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.v2 import BatchReadRequest, Rc

LAST_ENTRY: Final = -1
"""Entry id that requests the last entry of the ledger."""
LAC_PACKAGE_MIN: Final = 16
"""Size of ledger id and LAC; only clients use the digest behind them."""
BATCH_HEAD: Final = 36
"""Bytes that the original counts against a batch's size for the head of its answer."""


def check_write_lac(known_key: bytes | None, key: bytes, read_only: bool, ledger_id: int, body: bytes) -> Rc:
    """Check whether this explicit LAC may be stored.

    `body`: ledger id (8), LAC (8), digest. A fence does not affect it.
    """
    if read_only:
        return Rc.READ_ONLY
    if len(body) < LAC_PACKAGE_MIN or int.from_bytes(body[:8], "big", signed=True) != ledger_id:
        return Rc.BAD_REQUEST
    if known_key is not None and known_key != key:
        return Rc.UNAUTHORIZED
    return Rc.OK


def lac_of_package(package: bytes) -> int:
    """Return the LAC in an explicit LAC's body."""
    return int.from_bytes(package[8:LAC_PACKAGE_MIN], "big", signed=True)


def lac_of_entry(entry: Buffer) -> int:
    """Return the LAC known to the writer when it sent the entry; -1 for none."""
    return int.from_bytes(entry[16:24], "big", signed=True)


def check_fence(known_key: bytes | None, key: bytes | None) -> Rc:
    """Check whether a read with this key may fence the ledger, even a new one: its writer's adds may follow."""
    if key is None:
        return Rc.UNAUTHORIZED
    if known_key is not None and known_key != key:
        return Rc.UNAUTHORIZED
    return Rc.OK


def check_read(known: bool, entry_id: int) -> Rc:
    """Check whether this entry may be looked up."""
    if entry_id < LAST_ENTRY:
        return Rc.BAD_REQUEST
    return Rc.OK if known else Rc.NO_LEDGER


def rc_of(error: Exception) -> Rc:
    """Return the code of a failed read. Damage is never "no such entry": recovery would truncate the ledger there."""
    match error:
        case NoLedgerError():
            return Rc.NO_LEDGER
        case NoEntryError():
            return Rc.NO_ENTRY
        case LedgerInLimboError():
            return Rc.UNKNOWN_LEDGER_STATE
        case _:
            return Rc.IO


def batch_limits(request: BatchReadRequest, size_max: int) -> tuple[int, int]:
    """Return the number of entries (unbounded if 0 or less are requested) and bytes of (size entry)* that the answer
    may have.

    One entry is always allowed, whatever its size.
    """
    count = request.count_max if request.count_max > 0 else (1 << 31) - 1
    return count, min(request.size_max, size_max) - BATCH_HEAD

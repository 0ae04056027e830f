"""What a request may do: master key, fence, read-only, limits. Pure.

Source: BookKeeper's WriteEntryProcessor, ReadEntryProcessor, BatchedReadEntryProcessor, WriteLacProcessorV3,
LedgerDescriptorImpl.
"""

from __future__ import annotations

from typing import Final

from bookie.errors import LedgerInLimboError, NoEntryError, NoLedgerError
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.v2 import HIGH_PRIORITY, RECOVERY_ADD, BatchReadRequest, Rc

LAST_ENTRY: Final = -1
"""Asks for the last entry of the ledger."""
LAC_PACKAGE_MIN: Final = 16
"""Ledger id and LAC; the digest behind them is the client's business."""
BATCH_HEAD: Final = 36
"""What the original counts against a batch's size for the head of its answer, in bytes."""


def check_write_lac(known_key: bytes | None, key: bytes, read_only: bool, ledger_id: int, body: bytes) -> Rc:
    """May this explicit LAC be stored? `body`: ledger id (8), LAC (8), digest. A fence does not matter to it."""
    if read_only:
        return Rc.READ_ONLY
    if len(body) < LAC_PACKAGE_MIN or int.from_bytes(body[:8], "big", signed=True) != ledger_id:
        return Rc.BAD_REQUEST
    if known_key is not None and known_key != key:
        return Rc.UNAUTHORIZED
    return Rc.OK


def lac_of_package(package: bytes) -> int:
    """The LAC in an explicit LAC's body."""
    return int.from_bytes(package[8:LAC_PACKAGE_MIN], "big", signed=True)


def lac_of_entry(entry: Buffer) -> int:
    """The LAC that its writer knew when it sent the entry; -1 for none."""
    return int.from_bytes(entry[16:24], "big", signed=True)


def may_add(
    known_key: bytes | None, key: bytes, fenced: bool, read_only: bool, flags: int, *, journal_failed: bool
) -> Rc:
    """May this run be added? `known_key` is None if the ledger is new here. A fenced ledger takes only what recovery writes
    back. Whether there is room is another question: a run that may be added waits for it."""
    if read_only and not flags & HIGH_PRIORITY:
        return Rc.READ_ONLY
    if known_key is not None and known_key != key:
        return Rc.UNAUTHORIZED
    if fenced and not flags & RECOVERY_ADD:
        return Rc.FENCED
    return Rc.IO if journal_failed else Rc.OK


def check_fence(known_key: bytes | None, key: bytes | None) -> Rc:
    """May a read with this key fence the ledger? One that is new here, too: its writer may be on its way."""
    if key is None:
        return Rc.UNAUTHORIZED
    if known_key is not None and known_key != key:
        return Rc.UNAUTHORIZED
    return Rc.OK


def check_read(known: bool, entry_id: int) -> Rc:
    """May this entry be looked for?"""
    if entry_id < LAST_ENTRY:
        return Rc.BAD_REQUEST
    return Rc.OK if known else Rc.NO_LEDGER


def rc_of(error: Exception) -> Rc:
    """How a failed read is told to the client. Damage is never "no such entry": recovery would cut the ledger there."""
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
    """Entries (0 or less asked for: as many as fit) and bytes of (size entry)* that the answer may have; one entry may
    always be there, however big."""
    count = request.count_max if request.count_max > 0 else (1 << 31) - 1
    return count, min(request.size_max, size_max) - BATCH_HEAD

"""Offloading of a closed ledger in two steps, as changes of the ledger list. Pure.

    prepared    a new uid is stored, then the object with this uid is written
    complete    the object is durable and has every entry of the ledger
    left        bookies do not have the ledger any more, or will not soon: it is named for deletion
    trimmed     the ledger is not of the list any more: its object is named for deletion in the same write

Why this is hard: a job may be killed between any two of its steps, and two jobs may run at once. So each step names the
uid that it found or stored before, and is refused if the list has another one: whichever object the list calls complete
was written by the job that prepared it last, and every other object of the ledger is garbage. Each step can be repeated
after a lost answer. Fields are Pulsar's, so that its tools show what was offloaded. Source: the OffloadContext of
Pulsar's MLDataFormats.proto.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from google.protobuf.message import DecodeError

from managed_ledger.errors import OffloadRefusedError
from managed_ledger.ledger_list import LedgerInfo, LedgerList
from quire.wire.pulsar import MLDataFormats_pb2 as pb

OFFLOADED_MAX: Final = 4000
"""Ledgers of a list that may have an offload context, trimmed ones included: each takes 75 bytes of a value
that may have a million."""
_64_BITS: Final = 1 << 64


class Offloaded(NamedTuple):
    """State of a ledger's offloading."""

    uid: str = ""
    """Identifies the object; empty: nothing was prepared."""
    complete: bool = False
    driver: str = ""
    """Name of the kind of storage."""
    bookkeeper_deleted: bool = False
    """True if the bookies have the ledger no more."""


def state_of(info: LedgerInfo) -> Offloaded:
    """Return the state of one ledger. Raises OffloadRefusedError for a context that cannot be read."""
    if not info.offload:
        return Offloaded()
    context = _context(info)
    uid = ""
    if context.HasField("uidMsb"):
        uid = str(UUID(int=(context.uidMsb % _64_BITS) * _64_BITS + context.uidLsb % _64_BITS))
    return Offloaded(uid, context.complete, context.driverMetadata.name, context.bookkeeperDeleted)


def closed_ledgers(value: LedgerList) -> tuple[LedgerInfo, ...]:
    """Return the ledgers that get no more entries: all but the last one, which may be open, and that one too if the log
    is terminated, or the ledgers behind it are gone because they were empty."""
    last = value.ledgers[-1:]
    is_closed = value.terminated is not None or any(info.offload for info in last)
    return tuple(info for info in value.ledgers[: None if is_closed else -1] if info.entries)


def prepared(value: LedgerList, ledger_id: int, uid: UUID, *, instead: str, driver: str, now_ms: int) -> LedgerList:
    """Return the list with a new uid for a ledger. `instead`: the uid that the caller found; empty: none.

    Raises OffloadRefusedError: the ledger is gone, not closed, complete, or has another uid."""
    info = _find(value, ledger_id)
    if info not in closed_ledgers(value):
        raise OffloadRefusedError(f"ledger {ledger_id} is not closed: only closed ledgers are offloaded")
    state = state_of(info)
    if state.uid == str(uid) and not state.complete:
        return value
    if state.complete:
        raise OffloadRefusedError(f"ledger {ledger_id} is offloaded already, as {state.uid}")
    if state.uid != instead:
        raise OffloadRefusedError(f"ledger {ledger_id} was prepared as {state.uid or 'nothing'}, not {instead!a}")
    offloaded = len(value.trimmed) + sum(1 for each in value.ledgers if each.offload)
    if not info.offload and offloaded >= OFFLOADED_MAX:
        raise OffloadRefusedError(f"{OFFLOADED_MAX} ledgers of this topic are offloaded: trim it first")
    context = pb.OffloadContext(complete=False, bookkeeperDeleted=False, timestamp=now_ms)
    context.uidMsb, context.uidLsb = _signed(uid.int // _64_BITS), _signed(uid.int % _64_BITS)
    context.driverMetadata.name = driver
    return _with(value, info, context.SerializeToString())


def completed(value: LedgerList, ledger_id: int, uid: UUID, *, now_ms: int) -> LedgerList:
    """Return the list in which the object `uid` of a ledger is complete. Raises OffloadRefusedError: the list has
    another uid, or not the ledger."""
    info = _find(value, ledger_id)
    state = state_of(info)
    if state.uid != str(uid):
        raise OffloadRefusedError(f"ledger {ledger_id} was prepared as {state.uid or 'nothing'}, not {uid}")
    if state.complete:
        return value
    context = _context(info)
    context.complete, context.timestamp = True, now_ms
    return _with(value, info, context.SerializeToString())


def released(value: LedgerList, ledger_id: int, uid: UUID) -> LedgerList:
    """Return the list in which a ledger is not offloaded. Raises OffloadRefusedError: the list has another uid, or the
    object is the only copy."""
    info = next((each for each in value.ledgers if each.ledger_id == ledger_id), None)
    if info is None or not info.offload:
        return value
    state = state_of(info)
    if state.uid != str(uid):
        raise OffloadRefusedError(f"ledger {ledger_id} was prepared as {state.uid or 'nothing'}, not {uid}")
    if state.bookkeeper_deleted:
        raise OffloadRefusedError(f"ledger {ledger_id} is not in its bookies any more: its object is the only copy")
    return _with(value, info, b"")


def is_in_object(info: LedgerInfo) -> bool:
    """Return whether a ledger is closed and whole even if bookies do not have it: its object is complete, or was the
    only copy."""
    try:
        state = state_of(info)
    except OffloadRefusedError:
        return False
    return info.entries > 0 and (state.complete or state.bookkeeper_deleted)


def due_to_leave(value: LedgerList, *, driver: str, lag_ms: int, now_ms: int) -> list[LedgerInfo]:
    """Return the ledgers that are to be deleted from their bookies: those with a complete object of `driver`, for more
    than `lag_ms`, which is negative for never. Source: Pulsar's ManagedLedgerImpl.isOffloadedNeedsDelete."""
    found: list[LedgerInfo] = []
    for info in closed_ledgers(value) if lag_ms >= 0 else ():
        if info.offload:
            context = _context(info)
            whole = context.complete and not context.bookkeeperDeleted and context.driverMetadata.name == driver
            if whole and now_ms - context.timestamp > lag_ms:
                found.append(info)
    return found


def left(value: LedgerList, ledger_id: int, uid: str) -> LedgerList:
    """Return the list in which bookies do not have a ledger any more, which is named for deletion. Raises
    OffloadRefusedError: the object `uid` of it is not complete."""
    info = _find(value, ledger_id)
    state = state_of(info)
    if state.uid != uid or not state.complete:
        raise OffloadRefusedError(f"ledger {ledger_id} has no complete object {uid}")
    context = _context(info)
    context.bookkeeperDeleted = True
    return _with(value, info, context.SerializeToString()).also_deleting([ledger_id])


def trimmed(value: LedgerList, ledger_ids: Collection[int], *, driver: str) -> LedgerList:
    """Return the list without these ledgers. They are named for deletion, and so are their objects of `driver`, whether
    complete or only prepared; empty: none of them."""
    gone = tuple(info for info in value.ledgers if info.ledger_id in ledger_ids and _has_object(info, driver))
    rest = value.without(ledger_ids)
    return replace(rest, trimmed=(*rest.trimmed, *gone)) if gone else rest


def _has_object(info: LedgerInfo, driver: str) -> bool:
    if not driver or not info.offload:
        return False
    try:
        state = state_of(info)
    except OffloadRefusedError:
        return False
    return state.driver == driver and bool(state.uid)


def _context(info: LedgerInfo) -> pb.OffloadContext:
    try:
        return pb.OffloadContext.FromString(info.offload)
    except DecodeError as error:
        raise OffloadRefusedError(f"ledger {info.ledger_id} has an unreadable offload context: {error}") from None


def _find(value: LedgerList, ledger_id: int) -> LedgerInfo:
    found = next((each for each in value.ledgers if each.ledger_id == ledger_id), None)
    if found is None:
        raise OffloadRefusedError(f"ledger {ledger_id} is not of this topic, or was trimmed")
    return found


def _with(value: LedgerList, before: LedgerInfo, offload: bytes) -> LedgerList:
    changed = replace(before, offload=offload)
    return replace(value, ledgers=tuple(changed if each is before else each for each in value.ledgers))


def _signed(number: int) -> int:
    return number - _64_BITS if number >= _64_BITS // 2 else number

"""Offloading of a closed ledger in two steps, as changes of the ledger list. Pure.

    prepared    a new uid is stored, then the object with this uid is written
    complete    the object is durable and has every entry of the ledger

Why this is hard: a job may be killed between any two of its steps, and two jobs may run at once. So each step names the
uid that it found or stored before, and is refused if the list has another one: whichever object the list calls complete
was written by the job that prepared it last, and every other object of the ledger is garbage. Each step can be repeated
after a lost answer. Fields are Pulsar's, so that its tools show what was offloaded; nothing here deletes a ledger from
its bookies. Source: the OffloadContext of Pulsar's MLDataFormats.proto.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from google.protobuf.message import DecodeError

from managed_ledger.errors import OffloadRefusedError
from managed_ledger.ledger_list import LedgerInfo, LedgerList
from quire.wire.pulsar import MLDataFormats_pb2 as pb

OFFLOADED_MAX: Final = 4000
"""Ledgers of a list that may have an offload context: each takes 75 bytes of a value that may have a million."""
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
    is terminated."""
    closed = value.ledgers if value.terminated is not None else value.ledgers[:-1]
    return tuple(info for info in closed if info.entries)


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
    if not info.offload and sum(1 for each in value.ledgers if each.offload) >= OFFLOADED_MAX:
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

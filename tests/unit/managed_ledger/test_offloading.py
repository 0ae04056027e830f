"""The two steps of an offloading: whatever the order of several jobs, the list names one object of each ledger."""

from __future__ import annotations

from functools import partial
from uuid import UUID

import pytest

from managed_ledger.errors import OffloadRefusedError
from managed_ledger.ledger_list import LedgerInfo, LedgerList, decode, encode
from managed_ledger.offloading import (
    OFFLOADED_MAX,
    Offloaded,
    closed_ledgers,
    completed,
    prepared,
    released,
    state_of,
)
from managed_ledger.stored_list import LIST_BYTES_MAX
from quire.ledger.position import Position
from quire.wire.pulsar import MLDataFormats_pb2 as pb
from tests.support.refusals import refuses

FIRST, SECOND = UUID("ffffffff-1111-4111-8111-111111111111"), UUID("22222222-2222-4222-8222-222222222222")
CLOSED = LedgerInfo(
    ledger_id=3, entries=9, size=900, closed_ms=5, properties=(("index", "8"),), unknown=b"\x9a\x03\x01x"
)
LIST = LedgerList(ledgers=(CLOSED, LedgerInfo(ledger_id=4)), properties=(("a", "b"),), deleting=(1,), opening=7)


def prepare(value: LedgerList, uid: UUID, instead: str = "", ledger_id: int = 3) -> LedgerList:
    return prepared(value, ledger_id, uid, instead=instead, driver="d", now_ms=10)


def test_a_ledger_is_offloaded_in_two_steps_in_the_fields_of_the_original() -> None:
    first = prepare(LIST, FIRST)
    assert state_of(first.ledgers[0]) == Offloaded(str(FIRST), complete=False, driver="d")
    last = completed(first, 3, FIRST, now_ms=11)
    assert state_of(last.ledgers[0]) == Offloaded(str(FIRST), complete=True, driver="d")
    again = decode(encode(last))
    assert again == last
    assert (again.properties, again.deleting, again.opening, again.ledgers[1]) == (
        LIST.properties,
        LIST.deleting,
        LIST.opening,
        LIST.ledgers[1],
    )
    assert (again.ledgers[0].properties, again.ledgers[0].unknown) == (CLOSED.properties, CLOSED.unknown)
    [info, _] = pb.ManagedLedgerInfo.FromString(encode(last)).ledgerInfo
    context = info.offloadContext
    assert (context.uidMsb, context.uidLsb) == (FIRST.int // 2**64 - 2**64, FIRST.int % 2**64 - 2**64)
    assert (context.complete, context.bookkeeperDeleted, context.timestamp) == (True, False, 11)
    assert context.driverMetadata.name == "d"


def test_each_step_can_be_repeated_and_changes_nothing_then() -> None:
    first = prepare(LIST, FIRST)
    assert prepare(first, FIRST) is first
    last = completed(first, 3, FIRST, now_ms=11)
    assert completed(last, 3, FIRST, now_ms=12) is last
    gone = released(last, 3, FIRST)
    assert gone == LIST
    assert released(gone, 3, FIRST) is gone
    assert released(gone, 99, FIRST) is gone


def test_a_second_job_takes_a_ledger_only_if_it_knows_of_the_first() -> None:
    first = prepare(LIST, FIRST)
    refuses(OffloadRefusedError, lambda: prepare(first, SECOND), "was prepared as ffffffff")
    second = prepare(first, SECOND, instead=str(FIRST))
    refuses(OffloadRefusedError, lambda: completed(second, 3, FIRST, now_ms=11), "was prepared as 22222222")
    refuses(OffloadRefusedError, lambda: released(second, 3, FIRST), "was prepared as 22222222")
    last = completed(second, 3, SECOND, now_ms=12)
    for instead in ("", str(FIRST), str(SECOND)):
        refuses(OffloadRefusedError, partial(prepare, last, FIRST, instead=instead), "offloaded already")
    refuses(OffloadRefusedError, lambda: prepare(last, SECOND), "offloaded already")


@pytest.mark.parametrize("ledger_id", [1, 4])
def test_neither_the_open_ledger_nor_one_that_is_gone_is_prepared(ledger_id: int) -> None:
    refuses(OffloadRefusedError, lambda: prepare(LIST, FIRST, ledger_id=ledger_id), f"ledger {ledger_id} is not")
    refuses(OffloadRefusedError, lambda: completed(LIST, ledger_id, FIRST, now_ms=1), f"ledger {ledger_id}")


def test_only_the_last_ledger_of_a_terminated_log_is_closed() -> None:
    last = LedgerInfo(ledger_id=4, entries=2, size=20, closed_ms=6)
    value = LedgerList(ledgers=(CLOSED, last))
    assert closed_ledgers(value) == (CLOSED,), "what is after it may be appended to it, as far as the list says"
    assert closed_ledgers(value.terminated_at(Position(4, 1))) == (CLOSED, last)
    assert closed_ledgers(LedgerList(ledgers=(LedgerInfo(ledger_id=2), last))) == (), "an empty one"


def test_the_last_ledger_of_a_terminated_log_stays_offloaded_when_the_log_is_opened() -> None:
    last = LedgerInfo(ledger_id=3, entries=9, size=900)  # of an owner that did not store when it was closed
    value = completed(prepare(LedgerList(ledgers=(last,), terminated=Position(3, 8)), FIRST), 3, FIRST, now_ms=11)
    opened = value.closed(3, entries=9, size=900, now_ms=12)
    assert opened is not value
    assert state_of(opened.ledgers[0]).complete


def test_a_list_gets_no_larger_by_offloading_than_metadata_services_take() -> None:
    full = completed(prepare(LIST, UUID(int=2**128 - 1)), 3, UUID(int=2**128 - 1), now_ms=2**41).ledgers[0].offload
    many = tuple(LedgerInfo(ledger_id=each, entries=1, offload=full) for each in range(OFFLOADED_MAX))
    ends = (LedgerInfo(ledger_id=OFFLOADED_MAX, entries=1), LedgerInfo(ledger_id=OFFLOADED_MAX + 1))
    assert OFFLOADED_MAX * len(full) < LIST_BYTES_MAX // 2
    room = LedgerList(ledgers=(*many[1:], *ends))
    assert state_of(prepare(room, FIRST, ledger_id=OFFLOADED_MAX).ledgers[-2]).uid == str(FIRST)
    refuses(
        OffloadRefusedError,
        lambda: prepare(LedgerList(ledgers=(*many, *ends)), FIRST, ledger_id=OFFLOADED_MAX),
        "trim it first",
    )


def test_the_only_copy_is_not_released_and_a_broken_context_is_named() -> None:
    context = pb.OffloadContext(uidMsb=0, uidLsb=1, complete=True, bookkeeperDeleted=True)
    value = LedgerList(ledgers=(LedgerInfo(ledger_id=3, entries=1, offload=context.SerializeToString()),) * 1)
    refuses(OffloadRefusedError, lambda: released(value, 3, UUID(int=1)), "the only copy")
    broken = LedgerInfo(ledger_id=3, entries=1, offload=b"\xff")
    refuses(OffloadRefusedError, lambda: state_of(broken), "ledger 3 has an unreadable offload context")

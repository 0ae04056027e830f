from __future__ import annotations

import pytest

from managed_ledger.errors import ManagedLedgerDamagedError
from managed_ledger.ledger_list import LedgerInfo, LedgerList, decode, encode
from quire.ledger.position import Position
from quire.wire.pulsar import MLDataFormats_pb2 as pb
from tests.support.refusals import refuses

CLOSED = LedgerInfo(ledger_id=2, entries=10, size=1143, closed_ms=1795259371000, properties=(("index", "9"),))
LIST = LedgerList(ledgers=(CLOSED, LedgerInfo(ledger_id=4)))


def test_a_list_comes_back_as_it_was_stored() -> None:
    offload = pb.OffloadContext(uidMsb=5, complete=True).SerializeToString()
    value = LedgerList(
        ledgers=(LedgerInfo(ledger_id=1, entries=3, size=9, closed_ms=7, offload=offload), *LIST.ledgers),
        terminated=Position(4, 7),
        properties=(("a", "b"),),
        deleting=(0, 3),
    )
    assert decode(encode(value)) == value


def test_no_bytes_are_an_empty_list() -> None:
    assert decode(b"") == LedgerList()


@pytest.mark.parametrize("value", [b"\xff", b"\x0a\x00", b"\x47\x78\x00", encode(LIST) + b"\x0a"])
def test_a_value_that_is_no_list_is_an_error_of_ours(value: bytes) -> None:
    refuses(ManagedLedgerDamagedError, lambda: decode(value))


def test_ids_that_do_not_grow_are_refused() -> None:
    refuses(ManagedLedgerDamagedError, lambda: LIST.opened(4))


def test_a_reader_that_does_not_know_our_field_reads_the_rest() -> None:
    with_intent, without = encode(LIST.also_deleting([1])), encode(LIST)
    assert with_intent.startswith(without)
    assert decode(with_intent).deleting == (1,)


def test_closing_the_last_ledger_notes_its_end() -> None:
    closed = LIST.closed(4, entries=5, size=50, now_ms=99)
    assert closed.ledgers[-1] == LedgerInfo(ledger_id=4, entries=5, size=50, closed_ms=99)


def test_a_ledger_that_was_closed_before_keeps_its_time() -> None:
    twice = LIST.closed(4, entries=5, size=50, now_ms=99).closed(4, entries=5, size=50, now_ms=1000)
    assert twice.ledgers[-1].closed_ms == 99


def test_an_empty_ledger_leaves_the_list_with_the_intent_to_delete_it() -> None:
    closed = LIST.closed(4, entries=0, size=0, now_ms=99)
    assert (closed.ledgers, closed.deleting) == ((CLOSED,), (4,))
    assert closed.deleted([4]).deleting == ()


def test_fields_of_a_newer_schema_are_kept_in_the_list_and_in_each_ledger() -> None:
    newer = bytes.fromhex("a206027e7e")
    info = pb.ManagedLedgerInfo.FromString(encode(LIST) + newer)
    info.ledgerInfo[0].MergeFromString(newer)
    value = decode(info.SerializeToString())
    again = encode(value.opened(9).deleted([2]))
    assert again.count(newer) == 2
    assert [one.unknown for one in decode(again).ledgers] == [newer, b"", b""]
    assert decode(again).unknown == newer


def test_a_ledger_that_was_made_ahead_is_to_be_deleted_until_it_is_in_the_list() -> None:
    ahead = LIST.also_deleting([3, 9])
    assert ahead.deleting == (3, 9)
    assert ahead.opened(9).deleting == (3,)
    assert ahead.opened(9).ledgers[-1] == LedgerInfo(ledger_id=9)

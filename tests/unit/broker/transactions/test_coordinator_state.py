"""The state of a coordinator: a log that is cut at any record tells what was decided, and what is still to be done."""

from __future__ import annotations

from random import Random

import pytest

from broker.transactions.coordinator_state import (
    ABORTED,
    ABORTING,
    COMMITTED,
    COMMITTING,
    OPEN,
    CoordinatorState,
    Transaction,
)
from broker.transactions.errors import InvalidStatusError, TransactionNotFoundError
from broker.transactions.records import RecordError, coordinator_record, coordinator_records
from broker.transactions.txn_id import TxnId
from quire.ledger.position import Position
from quire.wire.pulsar.TransactionFormats_pb2 import BatchedTransactionMetadataEntry, TransactionMetadataEntry

Op = TransactionMetadataEntry


def opened(state: CoordinatorState, timeout_ms: int = 1000, at_ms: int = 0) -> TxnId:
    transaction = state.open(at_ms, timeout_ms)
    state.opened(transaction, Position(1, transaction.id.least))
    return transaction.id


def test_a_decision_is_made_once_and_its_repetition_is_no_error() -> None:
    state = CoordinatorState(3)
    txn = opened(state)
    transaction = state.decide(txn, commit=True)
    assert transaction is not None
    state.decided(transaction, commit=True)
    assert state.decide(txn, commit=True) is transaction
    with pytest.raises(InvalidStatusError):
        state.decide(txn, commit=False)
    with pytest.raises(InvalidStatusError):
        state.add(txn, ["t"], [])
    state.ended(transaction)
    assert state.decide(txn, commit=True) is None  # its answer was lost
    with pytest.raises(InvalidStatusError):
        state.decide(txn, commit=False)
    with pytest.raises(TransactionNotFoundError):
        state.add(txn, ["t"], [])
    with pytest.raises(TransactionNotFoundError):
        state.find(TxnId(4, txn.least))


def test_everything_up_to_the_low_watermark_is_over() -> None:
    state = CoordinatorState(0)
    assert state.low_watermark == -1
    first, second, third = (opened(state) for _ in range(3))
    assert state.low_watermark == -1
    for txn, mark in ((second, -1), (first, second.least), (third, third.least)):
        state.decided(state.find(txn), commit=True)
        state.ended(state.find(txn))
        assert state.low_watermark == mark
    pending = state.open(0, 1)  # on its way to the log, so a client may get it any moment
    assert state.low_watermark == third.least < pending.id.least


def test_open_transactions_are_late_once_and_in_the_order_of_their_times() -> None:
    state = CoordinatorState(0)
    slow, quick, ended = opened(state, 500), opened(state, 100), opened(state, 50)
    state.decided(state.find(ended), commit=True)
    assert state.next_deadline_ms() == 100
    assert state.late(99) == []
    assert [each.id for each in state.late(100)] == [quick]
    assert [each.id for each in state.late(1000)] == [slow]
    assert state.next_deadline_ms() is None


@pytest.mark.parametrize("seed", range(30))
def test_a_log_that_ends_anywhere_tells_what_was_decided_and_by_whom_it_has_to_be_learnt(seed: int) -> None:
    """A history is written record by record; at each cut, the state read from the log is the one that was written."""
    rng, live, records = Random(seed), CoordinatorState(2), []

    def write(transaction: Transaction, op: int, **fields: object) -> None:
        record = coordinator_record(transaction.id, op, 7, live.last_id)
        for name, value in fields.items():
            if isinstance(value, list):
                getattr(record, name).extend(value)
            else:
                setattr(record, name, value)
        records.append((record, expected()))

    def expected() -> dict[int, tuple[int, frozenset[str]]]:
        return {least: (each.status, frozenset(each.partitions)) for least, each in live.transactions.items()}

    for _ in range(60):
        choice, known = rng.random(), list(live.transactions.values())
        if choice < 0.3 or not known:
            transaction = live.open(0, 1000)
            live.opened(transaction, Position(1, len(records)))
            write(transaction, Op.NEW, start_time=0, timeout_ms=1000)
            continue
        transaction = rng.choice(known)
        if transaction.status == OPEN and choice < 0.7:
            live.add(transaction.id, [f"t{rng.randrange(5)}"], [])
            write(transaction, Op.ADD_PARTITION, partitions=list(transaction.partitions))
        elif transaction.status == OPEN:
            live.decided(transaction, commit=rng.random() < 0.5)
            write(transaction, Op.UPDATE, expected_status=OPEN, new_status=transaction.status)
        else:
            final = COMMITTED if transaction.commits else ABORTED
            live.ended(transaction)
            write(transaction, Op.UPDATE, expected_status=transaction.status, new_status=final)
    for cut in range(len(records) + 1):
        read = CoordinatorState(2)
        settled: set[Position] = set()
        for number, (record, _) in enumerate(records[:cut]):
            settled.update(read.replay(Position(1, number), record))
        now = records[cut - 1][1] if cut else {}
        assert {least: (each.status, frozenset(each.partitions)) for least, each in read.transactions.items()} == now
        assert {each.id.least for each in read.half_ended()} == {
            least for least, (status, _) in now.items() if status in (COMMITTING, ABORTING)
        }
        # What is settled may be missing the next time: the state is the same without it.
        again = CoordinatorState(2)
        for number, (record, _) in enumerate(records[:cut]):
            if Position(1, number) not in settled:
                again.replay(Position(1, number), record)
        assert {least: each.status for least, each in again.transactions.items()} == {
            least: status for least, (status, _) in now.items()
        }


def test_entries_with_several_records_and_damaged_ones() -> None:
    records = [coordinator_record(TxnId(1, number), Op.NEW, 0, number) for number in range(3)]
    batch = BatchedTransactionMetadataEntry(transaction_logs=records).SerializeToString()
    assert list(coordinator_records(b"\x0e\x01\x00\x01" + batch)) == records
    assert list(coordinator_records(records[0].SerializeToString())) == records[:1]
    with pytest.raises(RecordError):
        coordinator_records(b"\x0e\x01\x00\x01\xff\xff")

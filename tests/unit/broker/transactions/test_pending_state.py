"""Acknowledgements in transactions: one holder for each message, and the same answer after a kill at any record."""

from __future__ import annotations

from random import Random

import pytest

from broker.transactions.errors import ConflictError, InvalidStatusError
from broker.transactions.pending_state import Ack, PendingState, Result
from broker.transactions.records import CUMULATIVE, INDIVIDUAL, pending_ack_record, pending_ack_records, txn_of
from broker.transactions.txn_id import TxnId
from quire.ledger.position import Position

A, B = TxnId(0, 1), TxnId(0, 2)


class Cursor:
    """Entries that are acknowledged for good."""

    def __init__(self) -> None:
        self.acked: set[Position] = set()
        self.parts: dict[Position, int] = {}
        self.mark_delete = Position(1, -1)

    def is_acked(self, position: Position) -> bool:
        return position in self.acked or position <= self.mark_delete

    def ack_set(self, position: Position) -> list[int] | None:
        return [self.parts[position]] if position in self.parts and position not in self.acked else None

    def apply(self, result: Result) -> None:
        self.acked.update(result.whole)
        for position, [word] in result.parts:
            self.parts[position] = self.parts.get(position, -1) & word
            if not self.parts[position]:
                self.acked.add(position)
        if result.cumulative is not None:
            self.mark_delete = max(self.mark_delete, result.cumulative.position)


def whole(entry_id: int) -> Ack:
    return Ack(Position(1, entry_id), (), 0)


def part(entry_id: int, bits: int, size: int = 4) -> Ack:
    return Ack(Position(1, entry_id), (bits,), size)


def take(state: PendingState, txn: TxnId, *acks: Ack, cursor: Cursor | None = None, kind: int = INDIVIDUAL) -> None:
    state.check(txn, acks, kind, cursor or Cursor())
    state.hold(txn, acks, kind)


def test_a_message_has_one_holder_until_its_transaction_is_over() -> None:
    state, cursor = PendingState(), Cursor()
    take(state, A, whole(1), part(2, 0b1100))
    for ack in (whole(1), part(1, 0b1110), whole(2), part(2, 0b1110)):
        with pytest.raises(ConflictError):
            take(state, B, ack)
    take(state, B, part(2, 0b0111))  # another message of the batch
    assert state.wanted_runs(1, [(0, 4)], cursor) == [(0, 1), (2, 2)]
    assert state.wanted_words(Position(1, 2), cursor) == [0b0100]
    again = state.abort(A)
    assert again.whole == [Position(1, 1), Position(1, 2)]
    assert state.wanted_runs(1, [(0, 4)], cursor) == [(0, 4)]
    assert state.wanted_words(Position(1, 2), cursor) == [0b0111]
    with pytest.raises(InvalidStatusError):
        take(state, A, whole(3))
    take(state, B, whole(1))


def test_what_is_acknowledged_for_good_is_a_conflict() -> None:
    state, cursor = PendingState(), Cursor()
    cursor.acked.add(Position(1, 1))
    cursor.parts[Position(1, 2)] = 0b1110
    for ack in (whole(1), part(2, 0b1100)):
        with pytest.raises(ConflictError):
            take(state, A, ack, cursor=cursor)
    take(state, A, part(2, 0b1101), cursor=cursor)
    assert state.wanted_words(Position(1, 2), cursor) == [0b1100]
    take(state, A, part(2, 0b0011), cursor=cursor)
    assert state.wanted_runs(1, [(2, 1)], cursor) == []  # with what the cursor has, nothing is left


def test_one_transaction_at_a_time_acknowledges_cumulatively_and_only_forward() -> None:
    state = PendingState()
    take(state, A, whole(3), kind=CUMULATIVE)
    for txn, entry_id in ((B, 9), (A, 3), (A, 2)):
        with pytest.raises(ConflictError):
            take(state, txn, whole(entry_id), kind=CUMULATIVE)
    take(state, A, part(4, 0b1100), kind=CUMULATIVE)
    with pytest.raises(ConflictError):
        take(state, A, part(4, 0b1110), kind=CUMULATIVE)
    take(state, A, part(4, 0b1000), kind=CUMULATIVE)
    take(state, A, whole(4), kind=CUMULATIVE)
    assert state.commit(A).cumulative == whole(4)
    take(state, B, whole(9), kind=CUMULATIVE)


def test_the_watermark_names_what_nobody_will_end() -> None:
    state = PendingState()
    take(state, A, whole(1))
    take(state, TxnId(1, 1), whole(2))
    assert state.raise_watermark(0, 1) == [A]
    with pytest.raises(InvalidStatusError):
        take(state, TxnId(0, 0), whole(3))


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("seed", range(25))
def test_after_a_kill_at_any_record_nothing_is_lost_and_nothing_is_taken_back(seed: int, lost: bool) -> None:
    """The cursor is as durable as it can be, or has none of the commits (`lost`) whose records are still there."""
    rng, state, cursor = Random(seed), PendingState(), Cursor()
    log: list[tuple[bytes, dict[TxnId, dict[Position, int]], set[Position]]] = []
    running: list[TxnId] = []
    for least in range(12):
        running.append(TxnId(0, least))
        for _ in range(rng.randrange(5)):
            if not running:
                break
            txn = rng.choice(running)
            if rng.random() < 0.7:
                acks = [
                    whole(rng.randrange(30))
                    if rng.random() < 0.5
                    else part(30 + rng.randrange(4), rng.randrange(1, 15))
                ]
                try:
                    take(state, txn, *acks, cursor=cursor)
                except ConflictError:
                    continue
                record = pending_ack_record(txn, "ACK", INDIVIDUAL, acks)
            else:
                commit = rng.random() < 0.5
                running.remove(txn)
                record = pending_ack_record(txn, "COMMIT" if commit else "ABORT", INDIVIDUAL)
                if commit:
                    cursor.apply(state.commit(txn))
                else:
                    state.abort(txn)
            log.append((record, {each: dict(held.entries) for each, held in state.open.items()}, set(cursor.acked)))
    final = Cursor()
    if not lost:
        final.acked = set(log[-1][2]) if log else set()
    for cut in range(len(log) + 1):
        read, known = PendingState(), Cursor()
        if not lost and cut:
            known.acked = set(log[cut - 1][2])
        for number, (record, _, _) in enumerate(log[:cut]):
            for entry in pending_ack_records(record):
                result = read.replay(Position(9, number), entry, txn_of(entry))
                if result is not None:
                    known.apply(result)
        if cut:
            _, held, acked = log[cut - 1]
            assert {each: dict(found.entries) for each, found in read.open.items()} == held
            assert known.acked == acked

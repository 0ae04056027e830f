"""Transactions in the log of a topic: a snapshot of any moment, and the rest of the log, give the same answers."""

from __future__ import annotations

from random import Random

import pytest

from broker.transactions import buffer_state
from broker.transactions.buffer_state import Aborted, BufferState, Snapshot, SnapshotError
from broker.transactions.txn_id import TxnId
from quire.ledger.position import Position

EMPTY = Snapshot(Position(1, -1), {}, {})


def before(position: Position) -> Position:
    return Position(position.ledger_id, position.entry_id - 1)


def test_nothing_behind_the_first_open_message_is_read() -> None:
    state, first, second = BufferState(EMPTY), TxnId(0, 1), TxnId(0, 2)
    assert state.first_open() is None
    assert state.message(first, Position(1, 5))
    assert state.message(second, Position(1, 6))
    assert not state.message(first, Position(1, 7))
    assert state.first_open() == Position(1, 5)
    state.marker(first, Position(1, 8), commit=True)
    assert state.first_open() == Position(1, 6)
    state.marker(second, Position(1, 9), commit=False)
    assert state.first_open() is None
    assert state.is_hidden(second)
    assert not state.is_hidden(first)


def test_what_is_ended_takes_nothing_more() -> None:
    state, txn = BufferState(EMPTY), TxnId(0, 9)
    assert state.takes(txn)
    state.message(txn, Position(1, 0))
    state.ending(txn)  # its marker is on its way: what came later would be behind it
    assert not state.takes(txn)
    state.marker(txn, Position(1, 1), commit=True)
    assert not state.takes(txn)
    assert state.raise_watermark(0, 20) == []
    assert not state.takes(TxnId(0, 15))
    assert state.takes(TxnId(1, 15))
    assert state.takes(TxnId(0, 21))


def test_the_watermark_names_what_nobody_will_end() -> None:
    state = BufferState(EMPTY)
    for least in (3, 5, 8):
        state.message(TxnId(2, least), Position(1, least))
    state.message(TxnId(3, 1), Position(1, 20))
    assert state.raise_watermark(2, 5) == [TxnId(2, 3), TxnId(2, 5)]
    assert state.raise_watermark(2, 4) == [TxnId(2, 3), TxnId(2, 5)]  # it never goes back


def test_an_aborted_one_is_forgotten_with_the_ledger_of_its_marker() -> None:
    state = BufferState(
        Snapshot(
            Position(4, 1), {TxnId(0, 1): Aborted(None, Position(3, 9)), TxnId(0, 2): Aborted(None, Position(4, 0))}, {}
        )
    )
    state.trim(lambda ledger_id: ledger_id > 3)
    assert not state.is_hidden(TxnId(0, 1))
    assert state.is_hidden(TxnId(0, 2))


@pytest.mark.parametrize("stored_max", [2000, 2])
@pytest.mark.parametrize("seed", range(25))
def test_a_snapshot_of_any_moment_and_the_log_behind_it_are_the_whole_log(
    seed: int, stored_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer_state, "ABORTED_STORED_MAX", stored_max)
    rng = Random(seed)
    log: list[tuple[TxnId, bool | None]] = []
    running: list[TxnId] = []
    for least in range(25):
        running.append(TxnId(rng.randrange(2), least))
        for _ in range(rng.randrange(6)):
            if running:
                txn = rng.choice(running)
                end = rng.choice([None, None, True, False])
                log.append((txn, end))
                if end is not None:
                    running.remove(txn)

    def play(state: BufferState, start: int, stop: int) -> None:
        for number in range(start, stop):
            txn, end = log[number]
            if end is None:
                state.message(txn, Position(1, number))
            else:
                state.marker(txn, Position(1, number), commit=end)

    whole = BufferState(EMPTY)
    play(whole, 0, len(log))
    taken = BufferState(EMPTY)
    for moment in range(len(log) + 1):
        snapshot = Snapshot.decode(taken.snapshot(Position(1, moment - 1), before).encode())
        read = BufferState(snapshot)
        play(read, snapshot.position.entry_id + 1, len(log))
        assert read.open == whole.open
        assert set(read.aborted) == set(whole.aborted)
        assert len(snapshot.aborted) <= stored_max
        if moment < len(log):
            play(taken, moment, moment + 1)


@pytest.mark.parametrize("text", ["", "{}", '{"position":[1]}', '{"position":[1,2],"aborted":[[1]],"watermarks":[]}'])
def test_a_damaged_snapshot_is_told(text: str) -> None:
    with pytest.raises(SnapshotError):
        Snapshot.decode(text)

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cursors.batch_acks import BatchAcks, to_bits, to_words
from quire.ledger.position import Position

PLACE = Position(3, 7)


@given(st.integers(0, (1 << 200) - 1))
def test_words_are_signed_and_come_back(bits: int) -> None:
    words = to_words(bits)
    assert all(-(1 << 63) <= word < 1 << 63 for word in words)
    assert to_bits(words) == bits
    assert to_bits([word % (1 << 64) for word in words]) == bits


def test_what_remains_of_a_batch_is_the_and_of_all_acks() -> None:
    batches = BatchAcks()
    assert batches.ack(PLACE, 0b11011) == 0b11011
    assert batches.ack(PLACE, 0b01111) == 0b01011
    assert batches.unacked(PLACE) == 0b01011


def test_a_batch_of_which_nothing_remains_is_forgotten() -> None:
    batches = BatchAcks()
    batches.ack(PLACE, 0b10)
    assert batches.ack(PLACE, 0b01) == 0
    assert len(batches) == 0


def test_an_ack_never_makes_a_message_unacknowledged_again() -> None:
    batches = BatchAcks()
    batches.ack(PLACE, 0b0001)
    assert batches.ack(PLACE, 0b1111) == 0b0001


def test_batches_behind_the_mark_delete_position_are_forgotten() -> None:
    batches = BatchAcks()
    for entry in (1, 2, 3):
        batches.ack(Position(3, entry), 1)
    batches.forget_through(Position(3, 2))
    assert [place for place, _ in batches.items()] == [Position(3, 3)]
    batches.forget_through(Position(4, -1))
    assert len(batches) == 0

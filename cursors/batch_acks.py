"""Acknowledged messages within a batched entry. Pure.

A batch is known by the bitmap of its messages that are still unacknowledged: bit i of word w, 64-bit words, stands for
message 64 w + i (what the protocol calls ack_set, and the stored values deleteSet). Acknowledgements come as the same
bitmap seen from one client; the batch's is the AND of all. All zero: the entry is acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quire.ledger.position import Position

_WORD = (1 << 64) - 1


def to_bits(words: Sequence[int]) -> int:
    """One int of a bitmap in signed or unsigned 64-bit words, lowest word first."""
    bits = 0
    for word in reversed(words):
        bits = bits << 64 | word & _WORD
    return bits


def to_words(bits: int) -> list[int]:
    """Signed 64-bit words, lowest first, without zero words at the end.

    >>> to_words(0b10101), to_words(1 << 63), to_words(to_bits([0, -1]))
    ([21], [-9223372036854775808], [0, -1])
    """
    words: list[int] = []
    while bits:
        word = bits & _WORD
        words.append(word - (1 << 64) if word >> 63 else word)
        bits >>= 64
    return words


class BatchAcks:
    """The batches of a cursor that are acknowledged in part."""

    __slots__ = ("_unacked",)

    def __init__(self) -> None:
        self._unacked: dict[Position, int] = {}

    def __len__(self) -> int:
        return len(self._unacked)

    def ack(self, position: Position, unacked: int) -> int:
        """Note that only the messages in `unacked` are still wanted; returns what remains of the batch, 0 if nothing
        (then the batch is forgotten, and the entry is to be acknowledged)."""
        known = self._unacked.get(position)
        remaining = unacked if known is None else known & unacked
        if remaining:
            self._unacked[position] = remaining
        else:
            self._unacked.pop(position, None)
        return remaining

    def unacked(self, position: Position) -> int | None:
        """The bitmap of a batch that is acknowledged in part; None for any other entry."""
        return self._unacked.get(position)

    def forget(self, position: Position) -> None:
        """The entry was acknowledged."""
        self._unacked.pop(position, None)

    def forget_through(self, position: Position) -> None:
        """Every entry up to and with `position` was acknowledged."""
        for known in [known for known in self._unacked if known <= position]:
            del self._unacked[known]

    def forget_above(self, position: Position) -> None:
        for known in [known for known in self._unacked if known > position]:
            del self._unacked[known]

    def clear(self) -> None:
        self._unacked.clear()

    def items(self) -> Iterator[tuple[Position, int]]:
        """Ascending by position."""
        return iter(sorted(self._unacked.items()))

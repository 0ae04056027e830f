"""Acknowledged messages within a batched entry. Pure.

A batch is described by the bitmap of its messages that are still unacknowledged: bit i of word w, 64-bit words, stands
for message 64 w + i (what the protocol calls ack_set, and the stored values deleteSet). Acknowledgements come as the
same bitmap seen from one client; the batch's is the AND of all. All zero: the entry is acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from struct import pack, unpack

from quire.ledger.position import Position

BATCH_SIZE_MAX = 65_536
"""Maximum size of a batch that can be acknowledged in part."""
ACK_SET_WORDS_MAX = BATCH_SIZE_MAX // 64
_WORD = (1 << 64) - 1
_HEAP_SLACK = 64


def to_bits(words: Sequence[int]) -> int:
    """Return one int for a bitmap in signed or unsigned 64-bit words, lowest word first. Linear in the words."""
    return int.from_bytes(pack(f"<{len(words)}Q", *[word & _WORD for word in words]), "little")


def to_words(bits: int) -> list[int]:
    """Return signed 64-bit words, lowest first, without zero words at the end.

    >>> to_words(0b10101), to_words(1 << 63), to_words(to_bits([0, -1]))
    ([21], [-9223372036854775808], [0, -1])
    """
    size = word_count(bits)
    return list(unpack(f"<{size}q", bits.to_bytes(8 * size, "little")))


def word_count(bits: int) -> int:
    """Return how many words `to_words` yields."""
    return -(-bits.bit_length() // 64)


class BatchAcks:
    """The partly acknowledged batches of a cursor.

    The heap has each of their positions, and some that are no longer there, so that passing a position costs by what is
    passed and not by what there is.
    """

    __slots__ = ("_encoded", "_heap", "_unacked", "words")

    def __init__(self) -> None:
        self._unacked: dict[Position, int] = {}
        self._heap: list[Position] = []
        self._encoded: dict[Position, bytes] = {}
        self.words = 0
        """64-bit words of all bitmaps."""

    def __len__(self) -> int:
        return len(self._unacked)

    def ack(self, position: Position, unacked: int) -> int:
        """Record that only the messages in `unacked` are still wanted; return the remaining messages of the batch.

        At 0 the batch is dropped, and the entry is to be acknowledged."""
        known = self._unacked.get(position)
        remaining = unacked if known is None else known & unacked
        if not remaining:
            self.forget(position)
            return 0
        if known is None:
            self._push(position)
        else:
            self.words -= word_count(known)
        self._unacked[position] = remaining
        self._encoded.pop(position, None)
        self.words += word_count(remaining)
        return remaining

    def _push(self, position: Position) -> None:
        heap = self._heap
        if len(heap) > 2 * len(self._unacked) + _HEAP_SLACK:  # mostly removed positions
            heap[:] = self._unacked
            heapify(heap)
        heappush(heap, position)

    def unacked(self, position: Position) -> int | None:
        """Return the bitmap of a partly acknowledged batch; None for any other entry."""
        return self._unacked.get(position)

    def forget(self, position: Position) -> None:
        """Drop the batch of an acknowledged entry."""
        known = self._unacked.pop(position, None)
        if known is not None:
            self.words -= word_count(known)
            self._encoded.pop(position, None)

    def forget_through(self, position: Position) -> None:
        """Drop the batches up to and including `position`, which were acknowledged."""
        heap = self._heap
        while heap and heap[0] <= position:
            self.forget(heappop(heap))

    def forget_above(self, position: Position) -> None:
        for known in [known for known in self._unacked if known > position]:
            self.forget(known)

    def clear(self) -> None:
        self._unacked.clear()
        self._heap.clear()
        self._encoded.clear()
        self.words = 0

    def items(self) -> Iterator[tuple[Position, int]]:
        """Return the batches in ascending order of position."""
        return iter(sorted(self._unacked.items()))

    def encoded(self, encode: Callable[[Position, int], bytes]) -> bytes:
        """Return what `encode` makes of each batch, in any order. It is called once per changed batch."""
        known = self._encoded
        for position, unacked in self._unacked.items():
            if position not in known:
                known[position] = encode(position, unacked)
        return b"".join(known.values())

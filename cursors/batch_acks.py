"""Acknowledged messages within a batched entry. Pure.

A batch is described by the bitmap of its messages that are still unacknowledged: bit i of word w, 64-bit words, stands
for message 64 w + i (what the protocol calls ack_set, and the stored values deleteSet). Acknowledgements come as the
same bitmap seen from one client; the batch's is the AND of all. All zero: the entry is acknowledged.

Why this is hard: there may be 100,000 batches, and no call may cost by their number. So they are kept in pages of
`PAGE` entries. One acknowledgement changes one page; passing the mark-delete position drops pages whole; and storing
all of them joins what the pages were encoded to, so that only changed pages are encoded again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from struct import pack, unpack
from typing import Final

from quire.ledger.position import Position

BATCH_SIZE_MAX = 65_536
"""Maximum size of a batch that can be acknowledged in part."""
ACK_SET_WORDS_MAX = BATCH_SIZE_MAX // 64
RECOVERED_IN_STEP = 2048
"""Batches of a recovered cursor that are decoded, or looked up, in one step of the event loop: about 4 ms."""
PAGE = 8192
"""Entries of one ledger whose batches are kept together."""
PAGE_COST = 20
"""Cost of a page in batches, when it is encoded."""
LARGE_COST = 16_000
_SHIFT = 13
_LOW = PAGE - 1
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


class BatchPage:
    """The partly acknowledged batches among `PAGE` entries of one ledger."""

    __slots__ = ("encoded", "first_entry_id", "heap", "ledger_id", "unacked", "words")

    def __init__(self, ledger_id: int, first_entry_id: int) -> None:
        self.ledger_id = ledger_id
        self.first_entry_id = first_entry_id
        self.unacked: dict[int, int] = {}
        """Bitmaps by the entry's number in the page."""
        self.heap: list[int] = []
        """Each of these numbers, and some that are no longer there."""
        self.words = 0
        self.encoded: tuple[Callable[[BatchPage], bytes], bytes] | None = None
        """A codec, and what it made of the page; None after a change."""

    def put(self, low: int, unacked: int) -> None:
        """Set the bitmap of one entry, which is not 0."""
        known = self.unacked.get(low)
        self.encoded = None
        self.unacked[low] = unacked
        self.words += word_count(unacked)
        if known is not None:
            self.words -= word_count(known)
            return
        heap = self.heap
        if len(heap) > 2 * len(self.unacked) + _HEAP_SLACK:  # mostly removed ones
            heap[:] = self.unacked
            heapify(heap)
        else:
            heappush(heap, low)

    def pop(self, low: int) -> None:
        """Drop the bitmap of one entry, if there is one."""
        known = self.unacked.pop(low, None)
        if known is not None:
            self.encoded = None
            self.words -= word_count(known)

    def is_encoded(self, encode: Callable[[BatchPage], bytes]) -> bool:
        """Return whether it was encoded like this since its last change."""
        return self.encoded is not None and self.encoded[0] is encode

    def encode(self, encode: Callable[[BatchPage], bytes]) -> bytes:
        """Return what `encode` makes of the page, from memory if it did so since the last change."""
        known = self.encoded
        if known is None or known[0] is not encode:
            known = self.encoded = encode, encode(self)
        return known[1]

    def columns(self) -> tuple[bytes, bytes, bytes]:
        """Return the entries' numbers in the page, the sizes of their bitmaps in bytes, and the bitmaps end to end."""
        bitmaps = [bits.to_bytes((bits.bit_length() + 7) >> 3, "little") for bits in self.unacked.values()]
        count = len(bitmaps)
        return pack(f"<{count}H", *self.unacked), pack(f"<{count}H", *map(len, bitmaps)), b"".join(bitmaps)


_NO_PAGES: Final[dict[tuple[int, int], BatchPage]] = {}
_NO_HEAP: Final[list[tuple[int, int]]] = []
"""Shared by the cursors without partly acknowledged batches; never changed."""


class BatchAcks:
    """The partly acknowledged batches of a cursor."""

    __slots__ = ("_count", "_heap", "_pages", "words")

    def __init__(self) -> None:
        self._pages = _NO_PAGES
        self._heap = _NO_HEAP
        """The key of each page, and of some that are no longer there."""
        self._count = 0
        self.words = 0
        """64-bit words of all bitmaps."""

    def __len__(self) -> int:
        return self._count

    @property
    def is_large(self) -> bool:
        """Return whether encoding all of it would take some milliseconds."""
        return self._count + PAGE_COST * len(self._pages) > LARGE_COST

    @property
    def page_count(self) -> int:
        return len(self._pages)

    def ack(self, position: Position, unacked: int) -> int:
        """Record that only the messages in `unacked` are still wanted; return the remaining messages of the batch.

        At 0 the batch is dropped, and the entry is to be acknowledged."""
        ledger_id, entry_id = position
        page = self._pages.get((ledger_id, entry_id >> _SHIFT))
        known = None if page is None else page.unacked.get(entry_id & _LOW)
        remaining = unacked if known is None else known & unacked
        if not remaining:
            self.forget(position)
            return 0
        if page is None:
            page = self._add_page(ledger_id, entry_id >> _SHIFT)
        words = page.words
        page.put(entry_id & _LOW, remaining)
        self.words += page.words - words
        self._count += known is None
        return remaining

    def _add_page(self, ledger_id: int, number: int) -> BatchPage:
        if self._pages is _NO_PAGES:
            self._pages, self._heap = {}, []
        key = ledger_id, number
        page = self._pages[key] = BatchPage(ledger_id, number << _SHIFT)
        heap = self._heap
        if len(heap) > 2 * len(self._pages) + _HEAP_SLACK:
            heap[:] = self._pages
            heapify(heap)
        else:
            heappush(heap, key)
        return page

    def unacked(self, position: Position) -> int | None:
        """Return the bitmap of a partly acknowledged batch; None for any other entry."""
        page = self._pages.get((position.ledger_id, position.entry_id >> _SHIFT))
        return None if page is None else page.unacked.get(position.entry_id & _LOW)

    def forget(self, position: Position) -> None:
        """Drop the batch of an acknowledged entry."""
        ledger_id, entry_id = position
        key = ledger_id, entry_id >> _SHIFT
        page = self._pages.get(key)
        if page is None or (entry_id & _LOW) not in page.unacked:
            return
        words = page.words
        page.pop(entry_id & _LOW)
        self.words += page.words - words
        self._count -= 1
        if not page.unacked:
            del self._pages[key]

    def forget_through(self, position: Position) -> None:
        """Drop the batches up to and including `position`, which were acknowledged."""
        heap, ledger_id, entry_id = self._heap, position.ledger_id, position.entry_id
        last = ledger_id, entry_id >> _SHIFT
        while heap and heap[0] < last:
            page = self._pages.pop(heappop(heap), None)
            if page is not None:
                self._count -= len(page.unacked)
                self.words -= page.words
        page = self._pages.get(last)
        if page is not None:
            lows, first = page.heap, last[1] << _SHIFT
            while lows and first + lows[0] <= entry_id:
                self.forget(Position(ledger_id, first + heappop(lows)))

    def clear(self) -> None:
        self._pages, self._heap = _NO_PAGES, _NO_HEAP
        self._count = self.words = 0

    def pages(self) -> list[BatchPage]:
        """Return the pages in ascending order."""
        return [self._pages[key] for key in sorted(self._pages)]

    def items(self) -> Iterator[tuple[Position, int]]:
        """Return the batches in ascending order of position."""
        for page in self.pages():
            for low in sorted(page.unacked):
                yield Position(page.ledger_id, page.first_entry_id + low), page.unacked[low]

    def first(self, count: int | None) -> Iterator[tuple[Position, int]]:
        """Return the first `count` batches; None: all of them. It costs by those returned, and by the pages."""
        return islice(self.items(), count)

    def encoded(self, encode: Callable[[BatchPage], bytes]) -> bytes:
        """Return what `encode` makes of each page, in any order. It is called once per changed page."""
        return b"".join([page.encode(encode) for page in self._pages.values()])

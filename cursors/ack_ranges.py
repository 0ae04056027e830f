"""Individually acknowledged entries above the mark-delete position. Pure.

Why this is hard: a slow consumer of a shared subscription leaves holes at arbitrary places, so there may be millions of
acknowledged entries or millions of holes. Both have to be cheap in memory and to store, in one structure, and a single
acknowledgement must not search.

Per ledger a map of chunks, each a bitmap of CHUNK entries kept as an int. A wholly acknowledged chunk is one shared
int, so that memory goes with the number of holes, not with the distance between the first and the last:

    chunk number   0            1      2      7
    bitmap         ...0111101   FULL   FULL   1000000...     bit i of chunk c: entry 1024 c + i is acknowledged
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

CHUNK = 1024
"""Entries per chunk."""
CHUNK_BYTES = CHUNK // 8
FULL = (1 << CHUNK) - 1
_SHIFT = 10
_LOW = CHUNK - 1
_WORDS_PER_CHUNK = CHUNK // 64
_CHUNK_WORDS = Struct(f"<{_WORDS_PER_CHUNK}q")
_NO_WORDS = (0,) * _WORDS_PER_CHUNK


_NO_LEDGERS: Final[dict[int, dict[int, int]]] = {}
"""Shared by the cursors that have nothing acknowledged above their mark-delete position; never changed."""


class AckRanges:
    """A set of (ledger id, entry id), cheap for runs and for holes alike."""

    __slots__ = ("_ledgers", "count", "partial_chunks", "range_count")

    def __init__(self) -> None:
        self._ledgers = _NO_LEDGERS
        self.count = 0
        """Entries in the set."""
        self.partial_chunks = 0
        """Chunks that are only partly in the set, which determines its size in memory and when stored."""
        self.range_count = 0
        """Ranges that `ranges` yields."""

    def __bool__(self) -> bool:
        return self.count > 0

    def _made_chunks(self, ledger_id: int) -> dict[int, int]:
        if self._ledgers is _NO_LEDGERS:
            self._ledgers = {}
        return self._ledgers.setdefault(ledger_id, {})

    def ledgers(self) -> list[int]:
        """Ids of the ledgers that have entries in the set, ascending."""
        return sorted(self._ledgers)

    def clear(self) -> None:
        self._ledgers = _NO_LEDGERS
        self.count = self.partial_chunks = self.range_count = 0

    def contains(self, ledger_id: int, entry_id: int) -> bool:
        chunks = self._ledgers.get(ledger_id)
        return chunks is not None and bool(chunks.get(entry_id >> _SHIFT, 0) >> (entry_id & _LOW) & 1)

    def has_chunk_of(self, ledger_id: int, entry_id: int) -> bool:
        """Return whether entries near this one are in the set, so that one more takes no room."""
        chunks = self._ledgers.get(ledger_id)
        return chunks is not None and (entry_id >> _SHIFT) in chunks

    def add_one(self, ledger_id: int, entry_id: int) -> bool:
        """Add one entry; False if it was there."""
        chunks = self._ledgers.get(ledger_id)
        if chunks is None:
            chunks = self._made_chunks(ledger_id)
        number = entry_id >> _SHIFT
        bitmap = chunks.get(number, 0)
        low = entry_id & _LOW
        bit = 1 << low
        if bitmap & bit:
            return False
        if 0 < low < _LOW:
            self.range_count += 1 - (bitmap >> (low - 1) & 0b101).bit_count()
        elif low:
            self.range_count += 1 - (bitmap >> (low - 1) & 1) - (chunks.get(number + 1, 0) & 1)
        else:
            self.range_count += 1 - (bitmap >> 1 & 1) - (chunks.get(number - 1, 0) >> _LOW)
        if not bitmap:
            self.partial_chunks += 1
        bitmap |= bit
        if bitmap == FULL:
            bitmap = FULL
            self.partial_chunks -= 1
        chunks[number] = bitmap
        self.count += 1
        return True

    def add(self, ledger_id: int, first: int, last: int) -> int:
        """Add entries `first` to `last` (inclusive); returns how many were not there."""
        if last < first:
            return 0
        chunks = self._made_chunks(ledger_id)
        added = 0
        for number in range(first >> _SHIFT, (last >> _SHIFT) + 1):
            base = number << _SHIFT
            low = max(first - base, 0)
            high = min(last - base, _LOW)
            mask = FULL if high - low == _LOW else ((1 << (high - low + 1)) - 1) << low
            added += self._unite(chunks, number, mask)
        return added

    def _unite(self, chunks: dict[int, int], number: int, mask: int) -> int:
        before = chunks.get(number, 0)
        after = before | mask
        if after == FULL:
            after = FULL
        self.partial_chunks += (after != FULL) - (before not in (0, FULL))
        self.range_count -= _starts(chunks, number) + _starts(chunks, number + 1)
        chunks[number] = after
        self.range_count += _starts(chunks, number) + _starts(chunks, number + 1)
        added = (mask & ~before).bit_count()
        self.count += added
        return added

    def first_missing(self, ledger_id: int, entry_id: int) -> int:
        """Return the first entry >= `entry_id` that is not in the set."""
        chunks = self._ledgers.get(ledger_id)
        if chunks is None:
            return entry_id
        number = entry_id >> _SHIFT
        bitmap = chunks.get(number, 0) >> (entry_id & _LOW)
        gap = ~bitmap & (bitmap + 1)  # the lowest bit that is 0
        found = entry_id + gap.bit_length() - 1
        if found >> _SHIFT == number:
            return found
        number += 1
        while (bitmap := chunks.get(number, 0)) == FULL:
            number += 1
        return (number << _SHIFT) + (~bitmap & (bitmap + 1)).bit_length() - 1

    def first_present(self, ledger_id: int, entry_id: int, last: int) -> int | None:
        """Return the first entry in [`entry_id`, `last`] that is in the set, or None."""
        chunks = self._ledgers.get(ledger_id)
        if chunks is None:
            return None
        number = entry_id >> _SHIFT
        bitmap = chunks.get(number, 0) >> (entry_id & _LOW) << (entry_id & _LOW)
        end = last >> _SHIFT
        if not bitmap and end - number > len(chunks):
            later = min((n for n in chunks if n > number), default=None)
            if later is None:
                return None
            number, bitmap = later, chunks[later]
        while not bitmap:
            number += 1
            if number > end:
                return None
            bitmap = chunks.get(number, 0)
        found = (number << _SHIFT) + (bitmap & -bitmap).bit_length() - 1
        return found if found <= last else None

    def missing_runs(self, ledger_id: int, first: int, last: int) -> list[tuple[int, int]]:
        """Yield the parts of [`first`, `last`] that are not in the set, as (first entry, count), ascending."""
        if ledger_id not in self._ledgers:
            return [(first, last - first + 1)] if first <= last else []
        runs: list[tuple[int, int]] = []
        at = self.first_missing(ledger_id, first)
        while at <= last:
            end = self.first_present(ledger_id, at, last)
            if end is None:
                runs.append((at, last - at + 1))
                break
            runs.append((at, end - at))
            at = self.first_missing(ledger_id, end)
        return runs

    def forget_through(self, ledger_id: int, entry_id: int, *, after: int = -1) -> None:
        """Remove every entry of earlier ledgers, and of this one up to and including `entry_id`.

        `after`: nothing up to and including this entry is in the set, which shortens the search."""
        ledgers = self._ledgers
        if not ledgers:
            return
        if len(ledgers) > 1 or ledger_id not in ledgers:
            for other in [known for known in ledgers if known < ledger_id]:
                whole = ledgers.pop(other)
                for number in list(whole):
                    self._forget_chunk(whole, number)
        chunks = ledgers.get(ledger_id)
        if chunks is None:
            return
        start, end = (after + 1) >> _SHIFT, (entry_id + 1) >> _SHIFT
        gone = range(start, end) if end - start <= len(chunks) else [known for known in chunks if known < end]
        for number in gone:
            self._forget_chunk(chunks, number)
        low = (entry_id + 1) & _LOW
        bitmap = chunks.get(end)
        if bitmap is not None and low:
            kept = bitmap >> low << low
            if kept:
                self.range_count -= _starts(chunks, end)
                chunks[end] = kept
                self.range_count += _starts(chunks, end)
                self.count -= bitmap.bit_count() - kept.bit_count()
                self.partial_chunks += bitmap == FULL
            else:
                self._forget_chunk(chunks, end)
        if not chunks:
            del ledgers[ledger_id]

    def _forget_chunk(self, chunks: dict[int, int], number: int) -> None:
        bitmap = chunks.get(number, 0)
        if not bitmap:
            return
        self.range_count -= _starts(chunks, number) + _starts(chunks, number + 1)
        del chunks[number]
        self.range_count += _starts(chunks, number + 1)
        self.count -= bitmap.bit_count()
        self.partial_chunks -= bitmap not in (0, FULL)

    def ranges(self, after: tuple[int, int] = (-1, -1)) -> Iterator[tuple[int, int, int]]:
        """Yield the set behind an entry as (ledger id, first entry, last entry), ascending, not touching each other."""
        for ledger_id in self.ledgers():
            if ledger_id < after[0]:
                continue
            chunks = self._ledgers[ledger_id]
            end = ((max(chunks) + 1) << _SHIFT) - 1
            at = self.first_present(ledger_id, after[1] + 1 if ledger_id == after[0] else 0, end)
            while at is not None:
                missing = self.first_missing(ledger_id, at)
                yield ledger_id, at, missing - 1
                at = self.first_present(ledger_id, missing, end)

    def count_from(self, ledger_id: int, entry_id: int) -> int:
        """Return how many entries of the set are at or behind an entry; costs by the chunks behind it."""
        found = 0
        for each, chunks in self._ledgers.items():
            if each < ledger_id:
                continue
            number = entry_id >> _SHIFT if each == ledger_id else 0
            found += sum(bitmap.bit_count() for at, bitmap in chunks.items() if at >= number)
            if each == ledger_id:
                found -= (chunks.get(number, 0) & ((1 << (entry_id & _LOW)) - 1)).bit_count()
        return found

    # Stored forms

    def word_count(self) -> int:
        """Return the number of 64-bit words that `words` yields for all ledgers."""
        return sum((max(chunks) + 1) * _WORDS_PER_CHUNK for chunks in self._ledgers.values())

    def words(self, ledger_id: int) -> list[int]:
        """Return the bitmap of a ledger as words: bit i of word w is entry 64 w + i. Signed, as protobuf's int64; no
        zero words at the end."""
        chunks = self._ledgers[ledger_id]
        words: list[int] = []
        for number in range(max(chunks) + 1):
            bitmap = chunks.get(number)
            words += _CHUNK_WORDS.unpack(bitmap.to_bytes(CHUNK_BYTES, "little")) if bitmap else _NO_WORDS
        while words and words[-1] == 0:
            words.pop()
        return words

    def add_words(self, ledger_id: int, words: list[int]) -> None:
        """Add entries in the form of `words`."""
        padding = -len(words) % _WORDS_PER_CHUNK
        words = [*words, *([0] * padding)]
        for number in range(len(words) // _WORDS_PER_CHUNK):
            packed = _CHUNK_WORDS.pack(*words[number * _WORDS_PER_CHUNK : (number + 1) * _WORDS_PER_CHUNK])
            self.add_chunk(ledger_id, number, int.from_bytes(packed, "little"))

    def chunks(self, ledger_id: int) -> list[tuple[int, int]]:
        """Yield (chunk number, bitmap), ascending, without empty ones."""
        return sorted(self._ledgers[ledger_id].items())

    def add_chunk(self, ledger_id: int, number: int, bitmap: int) -> None:
        """Add a whole chunk's bitmap."""
        if bitmap:
            self._unite(self._made_chunks(ledger_id), number, bitmap)


def _starts(chunks: dict[int, int], number: int) -> int:
    """Return how many ranges begin in a chunk."""
    bitmap = chunks.get(number, 0)
    return (bitmap & ~(bitmap << 1 | chunks.get(number - 1, 0) >> _LOW)).bit_count()

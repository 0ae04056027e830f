"""A run: consecutive entries of one ledger, as the bytes that the journal and the entry log both keep.

    run     ( size(4, big-endian) entry(size) )*        entry ids are consecutive: first, first + 1, ...

The decoder of a bookie's requests builds a run once, from ADD frames. The journal writes its parts, the write cache
keeps them, and the flush writes them again. Runs are never changed. Buffers may pin a larger received chunk: long-term
holders count `size` bytes and drop the run at the flush.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from quire.wire.bookkeeper.entry import Buffer

SIZE: Final = Struct("!i")
SIZE_LENGTH: Final = 4


class Run:
    """Run of `count` entries of ledger `ledger_id` from entry id `first` on.

    `parts` end to end are the run's bytes, `size` of them; a part never ends inside a size field, and an entry lies in
    one part or (a big one, not joined with its head) in two. `offsets[i]` is where the size field of entry `first + i`
    begins, in bytes from the start of the run. `key` (the ledger's master key) and `flags` are those of the ADDs that
    brought the run; a run read from a disk has none.
    """

    __slots__ = ("count", "first", "flags", "key", "ledger_id", "offsets", "parts", "size")

    def __init__(
        self,
        ledger_id: int,
        first: int,
        parts: list[Buffer],
        size: int,
        offsets: Sequence[int],
        key: bytes = b"",
        flags: int = 0,
    ) -> None:
        self.ledger_id = ledger_id
        self.first = first
        self.count = len(offsets)
        self.parts = parts
        self.size = size
        self.offsets = offsets
        self.key = key
        self.flags = flags

    def __repr__(self) -> str:
        return f"Run(ledger {self.ledger_id}, entries {self.first}..{self.last}, {self.size} bytes)"

    @property
    def last(self) -> int:
        """Return the id of the last entry."""
        return self.first + self.count - 1

    @classmethod
    def of(cls, ledger_id: int, entries: Sequence[tuple[int, Buffer]]) -> Run:
        """Return a run of (entry id, entry) pairs, joined into one part. The ids must be consecutive.

        >>> run = Run.of(7, [(3, b"ab"), (4, b"c")])
        >>> run.first, run.last, run.size, bytes(run.parts[0])
        (3, 4, 11, b'\\x00\\x00\\x00\\x02ab\\x00\\x00\\x00\\x01c')
        """
        assert entries, "a run has entries"
        first = entries[0][0]
        pieces: list[Buffer] = []
        offsets: list[int] = []
        size = 0
        for expected, (entry_id, entry) in enumerate(entries, first):
            assert entry_id == expected, f"entry {entry_id} in the place of {expected}"
            length = len(entry)
            pieces.append(SIZE.pack(length))
            pieces.append(entry)
            offsets.append(size)
            size += SIZE_LENGTH + length
        return cls(ledger_id, first, [b"".join(pieces)], size, offsets)

    def entry(self, entry_id: int) -> memoryview:
        """Return the bytes of one entry, without its size field. Copies only if the entry lies in two parts."""
        index = entry_id - self.first
        offsets = self.offsets
        start = offsets[index] + SIZE_LENGTH
        end = offsets[index + 1] if index + 1 < self.count else self.size
        parts = self.parts
        if len(parts) == 1:
            return memoryview(parts[0])[start:end]
        pieces: list[memoryview] = []
        position = 0
        for part in parts:
            length = len(part)
            if position < end and position + length > start:
                pieces.append(memoryview(part)[max(0, start - position) : end - position])
            position += length
        return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))

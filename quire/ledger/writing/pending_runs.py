"""Pending entries: sealed once, and kept until confirmed so that they can be sent again. Pure.

A sealed entry in an ADD frame of the bookie protocol, as it is kept here:

    frameLength(4) header(4) masterKey(20) | ledgerId(8) entryId(8) LAC(8) length(8) digest(d) payload
    `----------- 28 bytes ------------'      `----------- 32 + d bytes -----------'

Memory: payloads up to `v2.JOIN_MAX` are copied once, into the run's joined frames, which releases the received chunk.
Bigger ones are not copied and keep their chunk alive. A view of one small payload keeps the joined frame of its run
alive. A run is released when all its entries are confirmed; the outbox of a slow bookie may hold its frames longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from crc32c import crc32c

from quire.ledger.errors import EntryTooLargeError
from quire.ledger.striping import Striping
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import METADATA_LENGTH, Buffer, Digest, DigestType

_METADATA = Struct("!qqqq")
_HEAD = Struct("!iI20s32s")
_HEAD_CRC32C = Struct("!iI20s32sI")


class PendingRun:
    """Consecutive entries of one ledger in their frames.

    `frames` hold the entries in order: a buffer holds one or more whole frames, a pair one big one. `sizes[i]` is the
    payload size of entry `first + i`, `payload_size` their sum; `size` counts the bytes of all frames.
    """

    __slots__ = ("_head_size", "_striping", "first", "frames", "last", "payload_size", "pushed_at", "size", "sizes")

    def __init__(
        self, first: int, frames: list[v2.Frame], sizes: list[int], head_size: int, striping: Striping
    ) -> None:
        self.first = first
        self.last = first + len(sizes) - 1
        self.frames = frames
        self.sizes = sizes
        self.payload_size = sum(sizes)
        self.size = self.payload_size + head_size * len(sizes)
        self.pushed_at = -1.0
        """Time of the event loop at which the run was sent; -1 if it is not timed."""
        self._head_size = head_size
        self._striping = striping

    def frames_between(self, index: int, first: int, last: int) -> tuple[list[v2.Frame], int]:
        """Return the frames of entries `first` to `last` (inclusive) for the bookie at `index`, as far as the run has
        them, and their number.
        """
        first = max(first, self.first)
        last = min(last, self.last)
        if first > last:
            return [], 0
        if self._striping.striped:
            own = self.frames[first - self.first : last - self.first + 1]
            chosen = self._striping.select(index, first, own)
            return join_small(chosen), len(chosen)
        if (first, last) == (self.first, self.last):
            return self.frames, len(self.sizes)
        cut: list[v2.Frame] = []
        entry_id = self.first
        sizes = iter(self.sizes)
        for frame in self.frames:
            if isinstance(frame, tuple):
                next(sizes)
                if first <= entry_id <= last:
                    cut.append(frame)
                entry_id += 1
                continue
            start = stop = position = 0
            while position < len(frame):
                position += self._head_size + next(sizes)
                if entry_id < first:
                    start = position
                if entry_id <= last:
                    stop = position
                entry_id += 1
            if stop > start:
                cut.append(memoryview(frame)[start:stop])
        return cut, last - first + 1

    def payloads(self, first: int, last: int) -> list[memoryview]:
        """Return views of the payloads of the entries `first` to `last` (inclusive), as far as the run has them."""
        views: list[memoryview] = []
        add = views.append
        head_size = self._head_size
        entry_id = self.first
        sizes = iter(self.sizes)
        for frame in self.frames:
            if isinstance(frame, tuple):
                next(sizes)
                if first <= entry_id <= last:
                    add(memoryview(frame[1]))
                entry_id += 1
                continue
            view = memoryview(frame)
            end = len(view)
            position = 0
            while position < end:
                start = position + head_size
                position = start + next(sizes)
                if first <= entry_id <= last:
                    add(view[start:position])
                entry_id += 1
        return views


def frames_of(runs: Sequence[PendingRun], index: int, first: int, last: int) -> tuple[list[v2.Frame], int]:
    """As `PendingRun.frames_between`, of several runs."""
    frames: list[v2.Frame] = []
    count = 0
    for run in runs:
        part, entries = run.frames_between(index, first, last)
        frames += part
        count += entries
    return frames, count


def take_confirmed(pending: list[PendingRun], last: int) -> list[PendingRun]:
    """Remove and return the runs, sorted by id, that have no entry above `last`."""
    count = 0
    for run in pending:
        if run.last > last:
            break
        count += 1
    taken = pending[:count]
    del pending[:count]
    return taken


def payload_bytes_behind(runs: Sequence[PendingRun], entry_id: int) -> int:
    """Payload bytes of the entries with higher ids than `entry_id`."""
    return sum([sum(run.sizes[max(0, entry_id + 1 - run.first) :]) for run in runs])


def join_small(frames: Sequence[v2.Frame]) -> list[v2.Frame]:
    """Return the same frames with adjacent plain buffers joined."""
    joined: list[v2.Frame] = []
    small: list[Buffer] = []
    for frame in frames:
        if isinstance(frame, tuple):
            if small:
                joined.append(b"".join(small))
                small = []
            joined.append(frame)
        else:
            small.append(frame)
    if small:
        joined.append(small[0] if len(small) == 1 else b"".join(small))
    return joined


class Sealer:
    """Converter of payloads of one ledger into runs of frames."""

    __slots__ = ("_digest", "_header", "_key", "_ledger_id", "_striping", "head_size", "payload_max")

    def __init__(
        self,
        ledger_id: int,
        digest: Digest,
        key: bytes,
        striping: Striping,
        *,
        flags: int = 0,
        frame_max: int = v2.FRAME_MAX,
    ) -> None:
        """`frame_max`: the largest frame that bookies accept, without its length field."""
        self._ledger_id = ledger_id
        self._digest = digest
        self._key = key
        self._striping = striping
        self._header = v2.header(v2.Opcode.ADD, flags)
        self.head_size = v2.ADD_OVERHEAD + digest.overhead
        """Bytes before each payload in its frame."""
        self.payload_max = frame_max + 4 - self.head_size

    def seal(self, first: int, lac: int, length: int, payloads: Sequence[Buffer]) -> PendingRun:
        """Return the run of entries from `first` on; `length` is the ledger's payload bytes before it.

        EntryTooLargeError.
        """
        sizes = list(map(len, payloads))
        assert sizes, "a run has entries"
        biggest = max(sizes)
        if biggest > self.payload_max:
            raise EntryTooLargeError(
                f"an entry of {biggest} bytes; {self.payload_max} is the limit of bookies (nettyMaxFrameSizeBytes)"
            )
        if self._digest.type is DigestType.CRC32C:
            heads = self._heads_crc32c(first, lac, length, payloads, sizes)
        else:
            heads = self._heads(first, lac, length, payloads, sizes)
        frames: list[v2.Frame]
        if biggest <= v2.JOIN_MAX and not self._striping.striped:
            pieces: list[Buffer] = [b""] * (2 * len(heads))
            pieces[::2] = heads
            pieces[1::2] = payloads
            frames = [b"".join(pieces)]
        else:
            frames = [
                (head, payload) if size > v2.JOIN_MAX else b"".join((head, payload))
                for head, payload, size in zip(heads, payloads, sizes, strict=True)
            ]
            if not self._striping.striped:
                frames = join_small(frames)
        return PendingRun(first, frames, sizes, self.head_size, self._striping)

    def _heads_crc32c(
        self, first: int, lac: int, length: int, payloads: Sequence[Buffer], sizes: list[int]
    ) -> list[bytes]:
        """Return the bytes before each payload. The hot loop of an append: two packs and two checksums per entry."""
        heads: list[bytes] = []
        add = heads.append
        pack_metadata = _METADATA.pack
        pack_head = _HEAD_CRC32C.pack
        checksum = crc32c
        header = self._header
        key = self._key
        ledger_id = self._ledger_id
        frame_extra = self.head_size - 4
        entry_id = first
        for payload, size in zip(payloads, sizes, strict=True):
            length += size
            metadata = pack_metadata(ledger_id, entry_id, lac, length)
            add(pack_head(frame_extra + size, header, key, metadata, checksum(payload, checksum(metadata))))
            entry_id += 1
        return heads

    def _heads(self, first: int, lac: int, length: int, payloads: Sequence[Buffer], sizes: list[int]) -> list[bytes]:
        """As `_heads_crc32c`, for any digest."""
        heads: list[bytes] = []
        compute = self._digest.compute
        frame_extra = self.head_size - 4
        for entry_id, (payload, size) in enumerate(zip(payloads, sizes, strict=True), first):
            length += size
            metadata = _METADATA.pack(self._ledger_id, entry_id, lac, length)
            heads.append(_HEAD.pack(frame_extra + size, self._header, self._key, metadata) + compute(metadata, payload))
        return heads


assert _HEAD.size == v2.ADD_OVERHEAD + METADATA_LENGTH

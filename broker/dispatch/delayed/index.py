"""Index of the delayed messages of one subscription (pure): no await, no clock, no I/O.

Why this is hard: there may be millions of delayed messages, due in any order, and their memory has to be bounded; yet
what is due must be found at once, and may never wait behind what is not. A message must not be delivered twice because
it was read twice, which happens whenever the first consumer comes back.

Two forms, both per block of BLOCK entries of a ledger, in which an entry takes one bit:

    held    all delayed messages that are not due: reading passes over them
    far     those of them whose due time is not in memory, only the earliest of each block

The due times in memory (`near`) are the earliest of all: what is below `_limit`. When there are too many, the latest of
them become far. When `near` has room and the earliest far message is about to be due, its block is read again, and
due times are learned from it (`wanted`, `begin`, `learn`, `end`). So a message costs a bit, plus KEY_BYTES while it is
among the next NEAR_MAX.

What holds after every call:
- EachOnce: a message of `near` that is still held is not far, and is in `near` once.
- NearIsEarliest: no far message of a block that is not being read is due before the limit, unless the block is wanted.
- NoneForgotten: each held message is in `near`, or far in a block with an earliest due time, or in a block being read.

Source of what is observed: Pulsar's InMemoryDelayedDeliveryTracker and BucketDelayedDeliveryTracker; the form is not
theirs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from heapq import heapify, heappop, heappush

from broker.dispatch.delayed.blocks import BLOCK, StoredBlock
from broker.dispatch.delayed.near import BUCKET_MAX, KEY_BYTES, NEAR_MAX, Delayed, Near, packed, unpacked

_SHIFT = 10
_LOW = BLOCK - 1
BLOCK_BYTES = 640
"""Memory of one block, at most: two bitmaps, the object and its place."""
FORGOTTEN_MAX = 256
"""Forgotten messages that one `release` passes over."""
STORED_IN_STEP = 512
"""Blocks that are stored in one step."""
_DUE_MAX = (1 << 64) - 1
NEVER = 1 << 256
"""A packed message behind all others."""

BlockKey = tuple[int, int]
"""Ledger id and number of a block in it."""


class _Block:
    __slots__ = ("far", "far_first", "held")

    def __init__(self) -> None:
        self.held = 0
        """Bitmap of the delayed messages that are not due."""
        self.far = 0
        """Bitmap of the held messages that are not in `near`."""
        self.far_first = NEVER
        """Lower bound of the far ones, packed."""


class DelayedIndex:
    """Delayed messages of one subscription, by due time and by position."""

    __slots__ = ("_blocks", "_far_heap", "_limit", "_near", "_near_max", "count")

    def __init__(self, near_max: int = NEAR_MAX, bucket_max: int = BUCKET_MAX) -> None:
        """Take the bounds: due times kept in memory, and of them in one bucket, which is at most a quarter."""
        assert 4 * bucket_max <= near_max
        self._near = Near(bucket_max)
        self._near_max = near_max
        self._blocks: dict[BlockKey, _Block] = {}
        self._far_heap: list[tuple[int, BlockKey]] = []
        """Blocks by their earliest far message. Valid only if the block has the same."""
        self._limit = NEVER
        """Lower bound of the messages that become far, packed."""
        self.count = 0
        """Messages in the index."""

    @property
    def size_bytes(self) -> int:
        """Return the memory it takes, about."""
        return len(self._near) * KEY_BYTES + len(self._blocks) * BLOCK_BYTES

    @property
    def block_count(self) -> int:
        """Return the blocks that have delayed messages."""
        return len(self._blocks)

    @property
    def near_count(self) -> int:
        """Return the due times in memory."""
        return len(self._near)

    # Positions

    def holds(self, ledger_id: int, entry_id: int) -> bool:
        """Return whether the message is in the index."""
        block = self._blocks.get((ledger_id, entry_id >> _SHIFT))
        return block is not None and bool(block.held >> (entry_id & _LOW) & 1)

    def first_free(self, ledger_id: int, entry_id: int) -> int:
        """Return the first entry of the ledger at or after this one that is not in the index."""
        while True:
            block = self._blocks.get((ledger_id, entry_id >> _SHIFT))
            if block is None:
                return entry_id
            low = entry_id & _LOW
            free = ~(block.held >> low)
            held = (free & -free).bit_length() - 1
            entry_id += held
            if low + held < BLOCK:
                return entry_id

    def add(self, due_ms: int, ledger_id: int, entry_id: int, key_hash: int = 0) -> None:
        """Add a message; one that is known keeps the time it has."""
        key = (ledger_id, entry_id >> _SHIFT)
        block = self._blocks.get(key)
        if block is None:
            block = self._blocks[key] = _Block()
        bit = 1 << (entry_id & _LOW)
        if block.held & bit:
            return
        block.held |= bit
        self.count += 1
        self._keep(packed(due_ms, ledger_id, entry_id, key_hash), key, block)

    def storing(self, most: int) -> Generator[None, None, list[StoredBlock]]:
        """Return the first `most` blocks in the order of the log, in short steps. What changes between them may be left
        out, or be there although it was removed."""
        firsts: dict[BlockKey, int] = {}
        for bucket in self._near.buckets():
            for due_ms, ledger_id, entry_id, _ in map(unpacked, bucket):
                key = ledger_id, entry_id >> _SHIFT
                if due_ms < firsts.get(key, _DUE_MAX):
                    firsts[key] = due_ms
            yield
        found: list[StoredBlock] = []
        for count, key in enumerate(sorted(self._blocks)[:most], 1):
            block = self._blocks.get(key)
            if block is not None:
                # 0: its times are being read. It is read again soon after a restart.
                first = firsts.get(key, _DUE_MAX if block.far else 0)
                if block.far:
                    first = min(first, unpacked(block.far_first).due_ms if block.far_first != NEVER else 0)
                found.append(StoredBlock(*key, first, block.held))
            if not count % STORED_IN_STEP:
                yield
        return found

    def restore(self, stored: StoredBlock) -> None:
        """Add the messages of a stored block. Their due times are read when the earliest is about to be due."""
        key = stored.ledger_id, stored.number
        block = self._blocks.get(key)
        if block is None:
            block = self._blocks[key] = _Block()
        added = stored.held & ~block.held
        block.held |= added
        block.far |= added
        self.count += added.bit_count()
        if added:
            self._lower(key, block, packed(stored.first_due_ms, 0, 0, 0))
        self._drop_if_empty(key, block)

    def forget_through(self, ledger_id: int, entry_id: int) -> None:
        """Remove everything up to and including this position: it is acknowledged."""
        last = (ledger_id, entry_id >> _SHIFT)
        for key in [key for key in self._blocks if key <= last]:
            block = self._blocks[key]
            low = 0 if key < last else (entry_id & _LOW) + 1
            kept = block.held >> low << low if key == last else 0
            self.count -= (block.held ^ kept).bit_count()
            block.held = kept
            block.far &= kept
            self._drop_if_empty(key, block)
        if not self.count:
            self.clear()

    def clear(self) -> None:
        """Remove everything, because the position moved elsewhere."""
        self._near.clear()
        self._blocks.clear()
        self._far_heap.clear()
        self._limit = NEVER
        self.count = 0

    # Due times

    @property
    def next_due(self) -> int | None:
        """Return the earliest due time in memory; None if there is none. What it belongs to may be forgotten."""
        first = self._near.first
        return None if first is None else unpacked(first).due_ms

    def skip_forgotten(self, most: int) -> bool:
        """Remove at most `most` due times of forgotten messages that come first; return whether there may be more."""
        near = self._near
        for _ in range(most):
            first = near.first
            if first is None:
                return False
            if self._holds(unpacked(first)):
                return False
            near.pop()
        return True

    def drop_forgotten(self) -> Iterator[None]:
        """Remove the due times of all forgotten messages, a bucket per element."""
        for bucket in self._near.buckets():
            self._near.keep(bucket, [each for each in bucket if self._holds(unpacked(each))])
            yield

    def _holds(self, message: Delayed) -> bool:
        return self.holds(message.ledger_id, message.entry_id)

    def release(self, cutoff_ms: int, most: int) -> list[Delayed]:
        """Remove and return at most `most` messages due at `cutoff_ms` or before, in the order of their times.

        There may be more if `next_due` says so: forgotten ones are passed over, a bounded number per call."""
        found: list[Delayed] = []
        near = self._near
        stop = packed(cutoff_ms + 1, 0, 0, 0)
        for _ in range(most + FORGOTTEN_MAX):
            first = near.first
            if first is None or first >= stop or len(found) >= most:
                break
            near.pop()
            delayed = unpacked(first)
            key = (delayed.ledger_id, delayed.entry_id >> _SHIFT)
            block = self._blocks.get(key)
            bit = 1 << (delayed.entry_id & _LOW)
            if block is None or not block.held & bit:
                continue
            block.held ^= bit
            self.count -= 1
            self._drop_if_empty(key, block)
            found.append(delayed)
        return found

    # Reading again

    def wanted(self, cutoff_ms: int) -> BlockKey | None:
        """Return the block to read next, so that what is due at `cutoff_ms` or before is in memory; None: nothing is to
        be read."""
        heap = self._far_heap
        while heap:
            first, key = heap[0]
            block = self._blocks.get(key)
            if block is None or block.far_first != first:
                heappop(heap)
                continue
            if first >= packed(cutoff_ms + 1, 0, 0, 0):
                return None
            if first >= self._limit:
                if 2 * len(self._near) >= self._near_max:
                    return None
                self._limit = NEVER
            return key
        return None

    @property
    def next_far(self) -> int | None:
        """Return the earliest due time that is not in memory; None if there is none, or it is being read."""
        heap = self._far_heap
        while heap:
            first, key = heap[0]
            block = self._blocks.get(key)
            if block is not None and block.far_first == first:
                return unpacked(first).due_ms
            heappop(heap)
        return None

    def begin(self, key: BlockKey) -> Reading:
        """Begin to read the far messages of a block. Until `end` it is not wanted."""
        block = self._blocks[key]
        reading = Reading(key, block.far, block.far_first)
        block.far_first = NEVER
        return reading

    def learn(self, reading: Reading, entry_id: int, due_ms: int, key_hash: int) -> None:
        """Learn the due time of an entry of the block that was read. Others than those being read are passed over."""
        block = self._read(reading, entry_id)
        if block is not None:
            block.far ^= 1 << (entry_id & _LOW)
            self._keep(packed(due_ms, reading.key[0], entry_id, key_hash), reading.key, block)

    def lost(self, reading: Reading, entry_id: int) -> None:
        """Remove an entry being read that does not exist any more."""
        block = self._read(reading, entry_id)
        if block is not None:
            bit = 1 << (entry_id & _LOW)
            block.far ^= bit
            block.held ^= bit
            self.count -= 1
            self._drop_if_empty(reading.key, block)

    def _read(self, reading: Reading, entry_id: int) -> _Block | None:
        bit = 1 << (entry_id & _LOW)
        if not reading.left & bit:
            return None
        reading.left ^= bit
        block = self._blocks.get(reading.key)
        return block if block is not None and block.far & bit else None

    def end(self, reading: Reading) -> None:
        """End reading a block. What was not read is wanted again."""
        block = self._blocks.get(reading.key)
        if block is not None and block.far & reading.left:
            self._lower(reading.key, block, reading.first)

    # Inner

    def _keep(self, message: int, key: BlockKey, block: _Block) -> None:
        near = self._near
        if message >= self._limit:
            self._make_far(message, key, block)
            return
        near.add(message)
        if len(near) > self._near_max:
            self._limit, dropped = near.drop_last()
            for each in dropped:
                delayed = unpacked(each)
                of = (delayed.ledger_id, delayed.entry_id >> _SHIFT)
                found = self._blocks.get(of)
                if found is not None and found.held >> (delayed.entry_id & _LOW) & 1:
                    self._make_far(each, of, found)

    def _make_far(self, message: int, key: BlockKey, block: _Block) -> None:
        block.far |= 1 << (unpacked(message).entry_id & _LOW)
        if message < block.far_first:
            self._lower(key, block, message)

    def _lower(self, key: BlockKey, block: _Block, first: int) -> None:
        if first >= block.far_first:
            return
        block.far_first = first
        heap = self._far_heap
        heappush(heap, (first, key))
        if len(heap) > 2 * len(self._blocks) + 64:  # mostly outdated
            heap[:] = [(each.far_first, of) for of, each in self._blocks.items() if each.far_first != NEVER]
            heapify(heap)

    def _drop_if_empty(self, key: BlockKey, block: _Block) -> None:
        if not block.held:
            del self._blocks[key]


class Reading:
    """Reading of one block."""

    __slots__ = ("first", "key", "left")

    def __init__(self, key: BlockKey, left: int, first: int) -> None:
        self.key = key
        self.left = left
        """Bitmap of the entries still to be read."""
        self.first = first

    def has(self, entry_id: int) -> bool:
        """Return whether an entry of the block is still to be read."""
        return bool(self.left >> (entry_id & _LOW) & 1)

    def next_run(self) -> tuple[int, int] | None:
        """Return the first entry still to be read, and how many entries to the last one; None if all are read."""
        if not self.left:
            return None
        low = (self.left & -self.left).bit_length() - 1
        return (self.key[1] << _SHIFT) + low, self.left.bit_length() - low

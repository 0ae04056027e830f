"""Recent entries by position, so that consumers at the end of a log cause no read at a bookie.

Entries are kept in the runs in which they were added. A run counts with all the bytes it keeps alive, which is more
than its payloads when those are views of a bigger buffer. It goes when every reader that was expected has read it, when
it is older than a limit, or when the broker's budget is used up (oldest first, whatever the topic).

What holds: CacheWithinBudget (`CacheBudget.used` never stays above its limit); a run that left is empty at once, so
that its memory is free although the budget's queue still knows it. Correctness never depends on the cache.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from managed_ledger.entry_run import EntryRun
from quire.world.doors import Buffer


def kept_bytes(payloads: Sequence[Buffer]) -> int:
    """Return the bytes kept alive by these payloads: the buffers that they are views of, each counted once."""
    first, last = payloads[0], payloads[-1]
    if isinstance(first, memoryview) and isinstance(last, memoryview) and first.obj is last.obj:
        whole = memoryview(first.obj).nbytes
        if sum(map(len, payloads)) <= whole:
            return whole
    total = 0
    before: Any = None
    for payload in payloads:
        if not isinstance(payload, memoryview):
            total += len(payload)
        elif payload.obj is not before:
            before = payload.obj
            total += memoryview(before).nbytes
    return total


class CachedRun:
    """A run in the cache."""

    __slots__ = ("cache", "entered_at", "first", "last", "ledger_id", "payloads", "size", "unread")

    def __init__(
        self, cache: EntryCache, ledger_id: int, first: int, payloads: list[Buffer], unread: int, entered_at: float
    ) -> None:
        self.cache = cache
        self.ledger_id = ledger_id
        self.first = first
        self.last = first + len(payloads) - 1
        self.payloads = payloads
        self.size = kept_bytes(payloads)
        self.unread = unread
        """Expected reads of single entries."""
        self.entered_at = entered_at
        """Time of its addition (trio's)."""


class CacheBudget:
    """Common byte budget of all caches of a broker."""

    def __init__(self, limit: int, watermark: float, age_max_s: float) -> None:
        self.limit = 0
        """Bytes; 0: nothing is cached."""
        self._queue: deque[CachedRun] = deque()
        self.used = 0
        self.evicted = 0
        """Entries evicted by age or budget, before all readers had read them."""
        self.at_most(limit, watermark, age_max_s)

    def at_most(self, limit: int, watermark: float, age_max_s: float) -> None:
        """Bound the caches by another limit and age; what is above it is evicted."""
        self.limit = limit
        self._low = int(limit * watermark)
        self._age_max_s = age_max_s
        if self.used > limit:
            self._evict_to(self._low)

    def admit(self, run: CachedRun) -> None:
        self._queue.append(run)
        self.used += run.size
        if self.used > self.limit:
            self._evict_to(self._low)

    def evict_old(self, now: float) -> None:
        """Drop runs that were added more than the age limit before `now` (trio's time)."""
        queue, oldest = self._queue, now - self._age_max_s
        while queue and (not queue[0].payloads or queue[0].entered_at < oldest):
            self._drop(queue.popleft())

    def _evict_to(self, target: int) -> None:
        while self._queue and self.used > target:
            self._drop(self._queue.popleft())

    def _drop(self, run: CachedRun) -> None:
        if run.payloads:
            self.evicted += len(run.payloads)
            run.cache.remove(run)


_NO_STARTS: Final[list[tuple[int, int]]] = []
_NO_RUNS: Final[list[CachedRun]] = []
"""Shared by all caches that nothing was put into, which is most; never changed."""


class EntryCache:
    """The cached runs of one log, in order of position."""

    __slots__ = ("_budget", "_runs", "_starts", "hits", "misses")

    def __init__(self, budget: CacheBudget) -> None:
        self._budget = budget
        self._starts = _NO_STARTS
        self._runs = _NO_RUNS
        self.hits = 0
        """Entries served."""
        self.misses = 0
        """Calls that found nothing."""

    def __len__(self) -> int:
        return sum(len(run.payloads) for run in self._runs)

    def keep(self, run: EntryRun, now: float) -> None:
        """Keep entries that were read, because they will soon be read again."""
        self.add(*run, 1, now)

    def add(self, ledger_id: int, first: int, payloads: list[Buffer], readers: int, now: float) -> None:
        """Keep a run that `readers` are expected to read. A run that overlaps the cached ones is ignored."""
        budget = self._budget
        if not budget.limit or not payloads:
            return
        run = CachedRun(self, ledger_id, first, payloads, readers * len(payloads), now)
        starts, runs = self._starts, self._runs
        if starts is _NO_STARTS:
            starts, runs = self._starts, self._runs = [], []
        start = (ledger_id, first)
        if not starts or start > starts[-1]:
            if runs and runs[-1].ledger_id == ledger_id and runs[-1].last >= first:
                return
            starts.append(start)
            runs.append(run)
        else:
            at = bisect_right(starts, start)
            before = runs[at - 1] if at else None
            if before is not None and before.ledger_id == ledger_id and before.last >= first:
                return
            # runs[at] exists: a run that starts where the last one does overlaps it, and was ignored above.
            after = runs[at]
            if after.ledger_id == ledger_id and after.first <= run.last:
                return
            starts.insert(at, start)
            runs.insert(at, run)
        budget.admit(run)

    def has(self, ledger_id: int, entry_id: int) -> bool:
        """Return whether an entry is cached."""
        at = bisect_right(self._starts, (ledger_id, entry_id)) - 1
        return at >= 0 and self._runs[at].ledger_id == ledger_id and entry_id <= self._runs[at].last

    def get(self, ledger_id: int, entry_id: int, count_max: int, size_max: int, *, counted: bool) -> EntryRun | None:
        """Return entries from the given one on, contiguous and within the limits, at least one; None if that one is not
        cached.

        `counted`: this is one of the expected reads."""
        at = bisect_right(self._starts, (ledger_id, entry_id)) - 1
        run = self._runs[at] if at >= 0 else None
        if run is None or run.ledger_id != ledger_id or entry_id > run.last:
            self.misses += 1
            return None
        found: list[Buffer] = []
        used_up: list[CachedRun] = []
        following = entry_id
        while True:
            offset = following - run.first
            count = run.last - following + 1
            if count > count_max or run.size > size_max:
                count = _fitting(run.payloads, offset, min(count, count_max), size_max, at_least_one=not found)
            if not offset and count == len(run.payloads) and not found:
                found = run.payloads
            elif found:
                found = found + run.payloads[offset : offset + count]
            else:
                found = run.payloads[offset : offset + count]
            if counted and count:
                run.unread -= count
                if run.unread <= 0:
                    used_up.append(run)
            following += count
            count_max -= count
            size_max -= run.size
            if count_max <= 0 or size_max <= 0 or following <= run.last:
                break
            at += 1
            if at == len(self._runs):
                break
            run = self._runs[at]
            if run.ledger_id != ledger_id or run.first != following:
                break
        for run in used_up:
            self.remove(run)
        self.hits += len(found)
        return EntryRun(ledger_id, entry_id, found)

    def remove(self, run: CachedRun) -> None:
        at = bisect_right(self._starts, (run.ledger_id, run.first)) - 1
        assert self._runs[at] is run, f"run {run.ledger_id}:{run.first} is not in its cache"
        del self._starts[at], self._runs[at]
        self._budget.used -= run.size
        run.payloads = []

    def forget_ledger(self, ledger_id: int) -> None:
        for run in [run for run in self._runs if run.ledger_id == ledger_id]:
            self.remove(run)

    def clear(self) -> None:
        for run in list(self._runs):
            self.remove(run)


def _fitting(payloads: Sequence[Buffer], offset: int, count: int, size_max: int, *, at_least_one: bool) -> int:
    """Return how many of `count` payloads from `offset` on have at most `size_max` bytes together."""
    total = 0
    for number in range(count):
        total += len(payloads[offset + number])
        if total > size_max:
            return max(number, 1) if at_least_one else number
    return count

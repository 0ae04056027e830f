"""Counts by key within a window of time, for a bounded number of keys (pure).

Why this is hard: the keys come from outside, such as addresses, and there may be more of them than memory. So the
oldest window goes when there is no room, whatever it has counted: a bound may be forgotten early, but memory is never
the price of keeping it. Each key has a window of its own, which begins with its first count, so that not all end at
once.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Windows(Generic[K]):
    """Counts of keys. Times are given by the caller, and never go back."""

    __slots__ = ("_keys_max", "_open", "_window_s")

    def __init__(self, window_s: float, keys_max: int) -> None:
        """`window_s`: seconds from the first count of a key to the end of its window. `keys_max`: keys at a time."""
        self._window_s = window_s
        self._keys_max = keys_max
        self._open: dict[K, list[float]] = {}
        """End and count by key. All windows are equally long, so they stand in the order of their ends."""

    def __len__(self) -> int:
        return len(self._open)

    def count(self, key: K, now: float) -> int:
        """Return what the open window of a key has counted; 0 without one."""
        window = self._open.get(key)
        return int(window[1]) if window is not None and window[0] > now else 0

    def add(self, key: K, now: float, count: int = 1) -> list[tuple[K, int]]:
        """Count; return the windows that end before, or for want of room: keys with their counts."""
        ended = self.ended(now)
        window = self._open.get(key)
        if window is None:
            if len(self._open) >= self._keys_max:
                oldest = next(iter(self._open))
                ended.append((oldest, int(self._open.pop(oldest)[1])))
            window = self._open[key] = [now + self._window_s, 0]
        window[1] += count
        return ended

    def ended(self, now: float) -> list[tuple[K, int]]:
        """Remove the windows that are over; return their keys and counts."""
        found: list[tuple[K, int]] = []
        for key, (end, count) in self._open.items():
            if end > now:
                break
            found.append((key, int(count)))
        for key, _ in found:
            del self._open[key]
        return found

"""Recent: what was seen a moment ago, of thousands of things at a time."""

from __future__ import annotations

from typing import Generic, TypeVar

import trio

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A map that forgets: an entry stays for at least half of `ttl_s` and at most for `ttl_s` (trio's time) after it
    was put, but for less if more than `size_max` come meanwhile. None is no value.

    Two dicts, of which the older goes as a whole: an entry costs what it costs in a dict, in time and in memory."""

    __slots__ = ("_half_max", "_half_s", "_old", "_turn_at", "_young")

    def __init__(self, size_max: int, ttl_s: float) -> None:
        self._half_max = max(1, size_max // 2)
        self._half_s = ttl_s / 2
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}
        self._turn_at = float("-inf")
        """When the young ones become old, at the latest."""

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())

    def get(self, key: K) -> V | None:
        """Return the value that was put last, unless it is forgotten."""
        now = trio.current_time()
        if now >= self._turn_at:  # a call less, where a broker loads its topics
            self._age(now)
        found = self._young.get(key)
        return self._old.get(key) if found is None else found

    def put(self, key: K, value: V) -> None:
        """Remember a value from now on."""
        now = trio.current_time()
        self._age(now)
        if len(self._young) >= self._half_max and key not in self._young:
            self._turn(now)
        self._young[key] = value

    def forget(self, key: K) -> None:
        """Forget a value; fine if it is forgotten."""
        self._young.pop(key, None)
        self._old.pop(key, None)

    def _age(self, now: float) -> None:
        if now < self._turn_at:
            return
        if now < self._turn_at + self._half_s:
            self._turn(self._turn_at)
        else:
            self._young = {}
            self._turn(now)

    def _turn(self, at: float) -> None:
        self._old, self._young = self._young, {}
        self._turn_at = at + self._half_s

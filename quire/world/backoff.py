"""Pauses between tries that fail one after the other (pure)."""

from __future__ import annotations

from quire.world.doors import Rng

JITTER = 0.25
"""Largest part of a pause that chance takes away."""


class Backoff:
    """Pauses that double from `first_s` to `max_s`, each shortened by chance.

    Chance keeps apart what failed at the same moment: the connections, logs and bookies that lost one peer would
    otherwise all come back to it at the same moment, and again at the next one.
    """

    __slots__ = ("_first_s", "_max_s", "_next_s", "_rng")

    def __init__(self, first_s: float, max_s: float, rng: Rng) -> None:
        """Args:
        first_s: the first pause in seconds, before chance shortens it.
        max_s: the longest pause in seconds; `first_s` if it is below that.
        rng: the world's, so that a simulated run is repeated by its seed.
        """
        self._first_s = self._next_s = first_s
        self._max_s = max(first_s, max_s)
        self._rng = rng

    def next(self) -> float:
        """Return the seconds to wait before the next try: 3/4 of the pause at least, all of it at most."""
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, self._max_s)
        return pause_s * (1 - JITTER * self._rng.random())

    def reset(self) -> None:
        """Begin again with the first pause: a try went well."""
        self._next_s = self._first_s

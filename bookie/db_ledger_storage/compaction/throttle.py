"""Rate of compaction. Pure."""

from __future__ import annotations


class CopyThrottle:
    """Bound of entries, or bytes, per second. `rate` 0 or less: none."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._free_at = 0.0

    def delay(self, now: float, amount: float) -> float:
        """Take `amount`; return the seconds to wait before it is used.

        >>> throttle = CopyThrottle(100)
        >>> [throttle.delay(0.0, 50), throttle.delay(0.0, 50), throttle.delay(5.0, 50)]
        [0.0, 0.5, 0.0]
        """
        if self._rate <= 0:
            return 0.0
        begin = max(self._free_at, now)
        self._free_at = begin + amount / self._rate
        return begin - now

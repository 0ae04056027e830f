"""Decides when an unanswered read is sent to the next bookie too. Pure.

    fixed       after 2 s, then twice as long, at most 2 s again       as in the original, and always the upper bound
    learned     after twice the usual time of the next bookie, at least 10 ms and the time that the bytes take

A learned wait keeps one slow bookie out of the high percentiles: the first read that it delays is overtaken, and for a
minute others are asked first. Only a share of the reads may be doubled early, so that a uniformly slow cluster is not
asked twice for everything.

Source: BookKeeper's DefaultSpeculativeRequestExecutionPolicy; "The Tail at Scale" (Dean, Barroso) for the share.
"""

from __future__ import annotations

from quire.ledger.read_config import ReadConfig

BYTES_PER_S = 50_000_000
"""Bytes per second above which the size of an answer does not explain its lateness."""
NEXT_TIMES = 2.0
"""Multiple of the next bookie's usual time that must have passed before it is asked too."""
CREDIT_MAX = 256.0
"""Reads that may be doubled early in a row; one call that reads entries one by one may use up to half of that."""


def fixed_wait_s(first_s: float, max_s: float, factor: float, doubled: int) -> float:
    """Return the seconds to wait for a read that was already sent to `doubled` additional bookies.

    >>> [fixed_wait_s(1.5, 5.0, 2.0, n) for n in range(4)]
    [1.5, 3.0, 5.0, 5.0]
    """
    return float(min(first_s * factor**doubled, max(first_s, max_s)))


def wait_s(config: ReadConfig, expected_s: float, size: int, doubled: int) -> float:
    """Return the seconds to wait as configured; infinite for never. The next bookie is expected to answer within
    `expected_s` (0: unknown), and `size` bytes are requested.

    >>> wait_s(ReadConfig(), 0.001, 50_000, 0), wait_s(ReadConfig(), 0.3, 1000, 0), wait_s(ReadConfig(), 9.0, 1, 0)
    (0.011, 0.60002, 2.0)
    """
    if not config.speculative_first_s:
        return float("inf")
    fixed = fixed_wait_s(config.speculative_first_s, config.speculative_max_s, config.speculative_factor, doubled)
    if not config.speculative_learned:
        return fixed
    learned = max(config.speculative_min_s, NEXT_TIMES * expected_s) + size / BYTES_PER_S
    return min(fixed, learned)


class DoubledReads:
    """Budget of reads that may be doubled early."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._credit = CREDIT_MAX

    def earn(self, count: int) -> None:
        """Record that `count` reads were made."""
        self._credit = min(CREDIT_MAX, self._credit + self._share * count)

    def spend(self, count: int) -> bool:
        """Take `count` reads from the budget; return whether it allows them."""
        if self._credit < count:
            return False
        self._credit -= count
        return True

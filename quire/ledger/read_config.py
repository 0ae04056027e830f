"""Configuration of reads. Each field names the originals' key."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadConfig:
    """Configuration of reads, in seconds unless stated otherwise.

    Source of the defaults: BookKeeper's ClientConfiguration.
    """

    speculative_first_s: float = 2.0
    """firstSpeculativeReadTimeout: a read that takes longer is sent to the next bookie too; 0: only after it failed."""
    speculative_max_s: float = 2.0
    """maxSpeculativeReadTimeout: the longest wait between two bookies."""
    speculative_factor: float = 2.0
    """speculativeReadTimeoutBackoffMultiplier: factor by which each wait is longer than the one before."""
    speculative_learned: bool = True
    """Wait less than `speculative_first_s` if the next bookie is known to be much faster, or not known at all.

    The original does not do this, and does not notice a bookie that needs 100 ms instead of 1.
    """
    speculative_min_s: float = 0.01
    """Lower bound of a learned wait."""
    speculative_share: float = 0.1
    """Share of the reads that may be sent a second time after a learned wait; others wait for `speculative_first_s`."""
    lac_first_s: float = 1.5
    """firstSpeculativeReadLACTimeout: a long poll that takes longer is sent to the next bookie too."""
    lac_max_s: float = 5.0
    """maxSpeculativeReadLACTimeout."""
    long_poll_s: float = 10.0
    """Time after which a bookie answers a long poll without news."""
    reorder: bool = True
    """reorderReadSequenceEnabled: bookies that failed or were slow are asked last."""
    sticky: bool = True
    """stickyReadSEnabled: if every bookie has every entry, read a ledger from one bookie, to benefit from its
    read-ahead.
    """
    batch_reads: bool = True
    """batchReadEnabled: read many entries with one request, if every bookie has every entry."""
    failure_memory_s: float = 60.0
    """bookieFailureHistoryExpirationMSec: time for which a bookie that failed, or was overtaken, is asked after the
    others.
    """

    def __post_init__(self) -> None:
        assert self.speculative_first_s >= 0, "speculative_first_s and lac_first_s must not be negative"
        assert min(self.lac_first_s, self.long_poll_s, self.failure_memory_s) > 0, "times are positive"
        assert self.speculative_min_s >= 0, "a wait is not negative"
        assert self.speculative_factor >= 1, "waits do not get shorter"
        assert 0 <= self.speculative_share <= 1, "a share is 0 to 1"

"""What an operator says about reading. The names of the originals' keys stand with the fields."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadConfig:
    """Seconds, unless said otherwise. Source of the defaults: BookKeeper's ClientConfiguration."""

    speculative_first_s: float = 2.0
    """firstSpeculativeReadTimeout: a read that takes longer is sent to the next bookie too; 0 for never, until it fails."""
    speculative_max_s: float = 2.0
    """maxSpeculativeReadTimeout: the longest wait between two bookies."""
    speculative_factor: float = 2.0
    """speculativeReadTimeoutBackoffMultiplier: by what each wait is longer than the one before."""
    speculative_learned: bool = True
    """Wait less than `speculative_first_s` where the next bookie is known to be much faster, or is not known at all.
    Not so in the original, which does not notice a bookie that needs 100 ms instead of 1."""
    speculative_min_s: float = 0.01
    """A learned wait is never shorter."""
    speculative_share: float = 0.1
    """Of so many of the reads there may be a second one after a learned wait; beyond that, after `speculative_first_s`."""
    lac_first_s: float = 1.5
    """firstSpeculativeReadLACTimeout: a long poll that takes longer is sent to the next bookie too."""
    lac_max_s: float = 5.0
    """maxSpeculativeReadLACTimeout."""
    long_poll_s: float = 10.0
    """So long a bookie may keep a long poll before it says that nothing came."""
    reorder: bool = True
    """reorderReadSequenceEnabled: bookies that failed or were slow are asked last."""
    sticky: bool = True
    """stickyReadSEnabled: where every bookie has every entry, read a ledger from one, whose read-ahead then helps."""
    batch_reads: bool = True
    """batchReadEnabled: many entries with one request, where every bookie has every entry."""
    failure_memory_s: float = 60.0
    """bookieFailureHistoryExpirationMSec: so long a bookie that failed, or was overtaken, is asked after the others."""

    def __post_init__(self) -> None:
        assert self.speculative_first_s >= 0, "0 is never"
        assert min(self.lac_first_s, self.long_poll_s, self.failure_memory_s) > 0, "times are positive"
        assert self.speculative_min_s >= 0, "a wait is not negative"
        assert self.speculative_factor >= 1, "waits do not get shorter"
        assert 0 <= self.speculative_share <= 1, "a share is 0 to 1"

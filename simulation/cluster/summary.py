"""One-line summary of a history of a cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    seed: int
    digest: str
    confirmed: int
    delivered: int
    answered_acks: int
    ledgers: int
    loads: int
    """Number of loads of topics."""
    takeovers: int
    """Number of moves of a topic's list between processes."""
    redirects: int
    recoveries: int
    repaired: int
    """Members of ensembles that workers replaced."""
    copies: int
    """Copies compared at the end."""
    lost_bookie: bool
    crashes: int
    dropping_crashes: int
    faults: tuple[tuple[str, int], ...] = ()
    """Faults by kind."""
    parts: str = ""
    """Observations of the parts of `simulation.life`, if there are any."""
    virtual_s: float = 0.0

    def __str__(self) -> str:
        faults = ", ".join(f"{count} {kind}" for kind, count in self.faults)
        return (
            f"seed {self.seed}: {self.confirmed} confirmed, {self.delivered} delivered, {self.answered_acks} "
            "acks answered,"
            f" {self.loads} loads of topics, {self.takeovers} takeovers, {self.redirects} redirects, "
            f"{self.ledgers} ledgers,"
            f" {self.recoveries} recoveries, {self.repaired} members replaced, {self.copies} copies compared,"
            f" {sum(count for _, count in self.faults)} faults ({faults}), {self.crashes} crashes"
            f" ({self.dropping_crashes} dropped unsynced writes){f', {self.parts}' if self.parts else ''},"
            f" {self.virtual_s:.0f} virtual s, digest "
            f"{self.digest[:16]}"
        )

"""Invariants of a bookie's disk at the end of a day, after a last major compaction. Pure.

DiskUseIsBounded: entry logs have at most `SHARE_MAX` times the bytes of the living entries, and of those that were
written again, and constants beside.
NothingDeletedComesBack: no bookie has anything of a deleted ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from simulation.common.checkers import require

SHARE_MAX = 1.3
"""Bytes of entry logs for each byte of living entries: a major compaction leaves logs of which 80 % live."""
LOG_EXCESS = 10_000
"""Bytes of an open entry log beyond its bound: its ledgers map, and its last entry."""
LOG_HEADER = 1024
"""Bytes of the header of each entry log, which counts only as logs are small here."""


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Content of the disk of one bookie."""

    bookie_id: str
    logs: tuple[tuple[str, int], ...]
    """Name and bytes of each entry log."""
    living: int
    """Bytes of the entries of living ledgers, with their size fields."""
    again: int
    """Bytes of entries of living ledgers that were written again, by a repair, a replay or after a failed flush. What
    compactions know of a log are the bytes of its ledgers, so an older copy goes with its ledger only."""
    others: int
    """Bytes of all other files."""

    @property
    def log_bytes(self) -> int:
        return sum([size for _, size in self.logs])


def check_use(use: DiskUse, *, log_size: int, open_logs: int, others_max: int) -> None:
    """Check one disk. `log_size`: bound of an entry log; `open_logs`: those written at one time, by flushes and by
    compactions; `others_max`: journals, reserve and small files."""
    allowed = SHARE_MAX * (use.living + use.again) + LOG_HEADER * len(use.logs) + open_logs * (log_size + LOG_EXCESS)
    require(
        use.log_bytes <= allowed,
        "DiskUseIsBounded",
        f"{use.bookie_id}: {use.log_bytes} bytes of entry logs for {use.living} of living entries, {use.again} "
        f"written again, {allowed:.0f} are "
        f"allowed: {use.logs}",
    )
    require(
        use.others <= others_max,
        "DiskUseIsBounded",
        f"{use.bookie_id}: {use.others} bytes beside entry logs, {others_max} are allowed",
    )


def check_deleted(bookie_id: str, held: Iterable[int], deleted: Sequence[int]) -> None:
    """Check that a bookie holds nothing of the deleted ledgers."""
    back = sorted(set(held).intersection(deleted))
    require(not back, "NothingDeletedComesBack", f"{bookie_id} has entries of the deleted ledgers {back[:5]}")

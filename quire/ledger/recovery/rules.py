"""Rules of recovery: conclusions from the answers of bookies. Pure.

Why this is hard: a bookie that does not answer may or may not have the entry. Ending the ledger too early loses a
confirmed entry; waiting for every bookie lets one lost bookie block recovery. So "missing" is proved by enough denials
that no ack quorum can exist, which holds only once enough bookies refuse the old writer.

Source: BookKeeper's RoundRobinDistributionSchedule.RRQuorumCoverageSet, PendingReadOp for recovery;
BookKeeperProtocol.tla.
"""

from __future__ import annotations

from enum import Enum

from quire.ledger.striping import Striping


class FenceCoverage:
    """Bookies of an ensemble that are known to refuse the old writer, and whether they are enough. Pure.

    They are enough if in each of the E write sets fewer than ack-quorum bookies are unknown: then no further entry can
    be confirmed.
    An answer counts if it is OK with a valid entry, or "no such entry" or "ledger".
    """

    def __init__(self, striping: Striping, ack_quorum: int) -> None:
        self._write_sets = striping.write_sets()
        self._ack_quorum = ack_quorum
        self._known = [False] * striping.ensemble_size

    def answered(self, index: int) -> None:
        self._known[index] = True

    @property
    def covered(self) -> bool:
        return all(
            sum([not self._known[index] for index in write_set]) < self._ack_quorum for write_set in self._write_sets
        )


class Verdict(Enum):
    PRESENT = "present"
    ABSENT = "absent"
    OPEN = "open"
    """Not decided yet."""


class RecoveryRead:
    """Decides from the answers of an entry's write set whether the entry may have been confirmed. Pure.

    One copy is enough to keep it. `write_quorum - ack_quorum + 1` denials prove that no ack quorum has it.
    """

    def __init__(self, write_quorum: int, ack_quorum: int) -> None:
        self._denials_needed = write_quorum - ack_quorum + 1
        self._denials = 0
        self.verdict = Verdict.OPEN

    def found(self) -> None:
        self.verdict = Verdict.PRESENT

    def denied(self) -> None:
        self._denials += 1
        if self.verdict is Verdict.OPEN and self._denials >= self._denials_needed:
            self.verdict = Verdict.ABSENT

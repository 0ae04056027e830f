"""Each checker of ledgers reports the violation that it is for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from quire.metadata import ledger_codec
from quire.metadata.ledgers import Fragment, LedgerMetadata, LedgerState
from simulation.common.checkers import ViolationError
from simulation.ledger.checkers import LedgerChecker, LedgerHistory
from tests.support.datadriven import Line
from tests.support.dialogues import Dialogue, dialogues

METADATA = LedgerMetadata(ensemble_size=3, write_quorum=3, ack_quorum=2, fragments=(Fragment(0, ("a", "b", "c")),))


class Cluster:
    """Bookies with the entries that they have of one ledger. It has three entries, two of them confirmed."""

    def __init__(self) -> None:
        self.entries: dict[str, set[int] | None] = {bookie: {0, 1, 2} for bookie in "abcd"}
        self.fences: set[str] = set()
        self.checker = LedgerChecker(self.has, self.fenced)
        self.store(METADATA)
        self.history: LedgerHistory = self.checker.created(7, "writer")
        self.history.payloads += [b"entry 0", b"entry 1", b"entry 2"]
        self.checker.confirmed(self.history, 0, 1)

    def has(self, bookie_id: str, ledger_id: int, entry_id: int) -> bool | None:
        entries = self.entries[bookie_id]
        return None if entries is None else entry_id in entries

    def fenced(self, bookie_id: str, ledger_id: int) -> bool | None:
        return None if self.entries[bookie_id] is None else bookie_id in self.fences

    def store(self, metadata: LedgerMetadata) -> None:
        self.checker.metadata_changed(7, ledger_codec.encode(metadata))

    def close(self, last: int, length: int) -> None:
        self.store(replace(METADATA, state=LedgerState.CLOSED, last_entry_id=last, length=length))

    def do(self, step: Line) -> None:
        """Do or see what a step says."""
        checker, history = self.checker, self.history
        match step.name:
            case "entries":
                bookie, entries = step.word(), step.word()
                self.entries[bookie] = None if entries == "down" else numbers(entries)
            case "entry":
                history.payloads.append(b"entry 3")
                for held in self.entries.values():
                    assert held is not None
                    held.add(3)
            case "fences":
                self.fences = set(step.word().replace("-", ""))
            case "confirmed":
                checker.confirmed(history, step.number(), step.number())
            case "back":
                checker.bookie_back(step.word())
            case "fragments":
                ends = [each.partition(":") for each in step.words]
                step.words = []
                self.store(replace(METADATA, fragments=tuple(Fragment(int(n), tuple(each)) for n, _, each in ends)))
            case "open":
                self.store(METADATA)
            case "recovering":
                self.store(replace(METADATA, state=LedgerState.IN_RECOVERY))
            case "closed":
                self.close(step.number(), step.number())
            case "nonsense":
                checker.metadata_changed(7, b"no metadata")
            case "gone":
                checker.metadata_changed(7, None)
            case "deleted":
                history.deleted = True
            case "fencing-ended":
                checker.fencing_ended(7, METADATA)
            case "recoveries":
                history.recoveries = step.number()
            case "denied":
                checker.entry_denied(7, step.number(), tuple(step.word()), step.number())
            case "length-missed":
                checker.length_missed(7, step.number())
            case "lac":
                checker.lac_seen(history, step.number(), step.number())
            case "read":
                checker.entries_read(history, step.number(), [b"entry %d" % n for n in sorted(numbers(step.word()))])
            case "final":
                checker.check_final()
            case _:
                raise step.unknown()


def numbers(text: str) -> set[int]:
    return {int(each) for each in text.split(",") if each != "none"}


@pytest.mark.parametrize("dialogue", dialogues(Path(__file__).parent / "testdata" / "checkers.txt"))
def test_a_violation(dialogue: Dialogue) -> None:
    """A step that violates an invariant shows its name."""
    cluster = Cluster()

    def answer(step: Line) -> str:
        try:
            cluster.do(step)
        except ViolationError as error:
            return error.name
        return ""

    dialogue.check(answer)

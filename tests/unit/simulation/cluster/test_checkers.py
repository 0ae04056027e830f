"""Each checker of clusters reports the violation that it is for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from managed_ledger.ledger_list import LedgerInfo, LedgerList
from quire.metadata import ledger_codec
from quire.metadata.ledgers import Fragment, LedgerMetadata, LedgerState
from simulation.cluster.checkers import ClusterChecker, Copy, check_owners
from simulation.common.checkers import ViolationError
from tests.support.datadriven import Line
from tests.support.dialogues import Dialogue, dialogues

TOPIC = "public/default/persistent/t"
METADATA = LedgerMetadata(
    ensemble_size=2, write_quorum=2, ack_quorum=1, fragments=(Fragment(0, ("a", "b")), Fragment(1, ("a", "c")))
)
CLOSED = replace(METADATA, state=LedgerState.CLOSED, last_entry_id=2, length=21)
ENTRIES = [b"entry 0", b"entry 1", b"entry 2"]
OWNER, NEXT = ("br0", 1), ("br1", 1)


class Cluster:
    """Bookies with the entries that they have of one ledger. It has three entries, two of them confirmed."""

    def __init__(self) -> None:
        self.entries: dict[str, set[int] | None] = {"a": {0, 1, 2}, "b": {0}, "c": {1, 2}, "d": set()}
        self.checker = ClusterChecker(self.has, lambda bookie_id, ledger_id: True)
        self.store(METADATA)
        self.history = self.checker.opened(7, OWNER)
        self.checker.appended(self.history, 0, ENTRIES)
        self.checker.confirmed(self.history, 0, 1)
        self.checker.list_changed(TOPIC, LedgerList(ledgers=(LedgerInfo(ledger_id=7),)), OWNER)

    def has(self, bookie_id: str, ledger_id: int, entry_id: int) -> bool | None:
        entries = self.entries[bookie_id]
        return None if entries is None else entry_id in entries

    def store(self, metadata: LedgerMetadata) -> None:
        self.checker.metadata_changed(7, ledger_codec.encode(metadata))

    def list(self, *ledgers: tuple[int, int], deleting: tuple[int, ...] = (), writer: tuple[str, int] = OWNER) -> None:
        infos = tuple(LedgerInfo(ledger_id=ledger_id, entries=entries) for ledger_id, entries in ledgers)
        self.checker.list_changed(TOPIC, LedgerList(ledgers=infos, deleting=deleting), writer)

    def do(self, step: Line) -> str:
        """Do or see what a step says."""
        checker, history = self.checker, self.history
        match step.name:
            case "entries":
                bookie, entries = step.word(), step.word()
                self.entries[bookie] = None if entries == "down" else {int(n) for n in entries.split(",")}
            case "confirmed":
                checker.confirmed(history, step.number(), step.number())
            case "append":
                checker.appended(history, step.number(), [b"late"])
            case "list":
                ends = [each.partition(":") for each in step.words]
                step.words = []
                deleting = tuple(int(each) for each in step.option("deleting", "").split(",") if each)
                writer = NEXT if step.option("by", "owner") == "next" else OWNER
                self.list(*((int(one), int(other)) for one, _, other in ends), deleting=deleting, writer=writer)
            case "closed" | "open":
                ends = [each.partition(":") for each in step.words]
                step.words = []
                fragments = tuple(Fragment(int(first), tuple(members)) for first, _, members in ends)
                metadata = CLOSED if step.name == "closed" else METADATA
                self.store(replace(metadata, fragments=fragments or METADATA.fragments))
            case "gone":
                checker.metadata_changed(7, None)
            case "repaired":
                return str(checker.repaired)
            case "leaks":
                checker.check_leaks(tuple(map(int, step.words)))
                step.words = []
            case "missing":
                copy = checker.missing()
                return "none" if copy is None else f"{copy.ledger_id}:{copy.entry_id} on {copy.bookie_id}"
            case "copies":
                wrong = {"bytes": b"entry 9", "digest": "the digest is wrong", "none": None}[step.word()]
                return str(
                    checker.check_copies(
                        lambda copy: wrong if wrong and copy == Copy(7, 1, "c") else ENTRIES[copy.entry_id]
                    )
                )
            case _:
                raise step.unknown()
        return ""


@pytest.mark.parametrize("dialogue", dialogues(Path(__file__).parent / "testdata" / "checkers.txt"))
def test_a_violation(dialogue: Dialogue) -> None:
    """A step that violates an invariant shows its name."""
    cluster = Cluster()

    def answer(step: Line) -> str:
        try:
            return cluster.do(step)
        except ViolationError as error:
            return error.name

    dialogue.check(answer)


@pytest.mark.parametrize(
    ("owned", "nodes"),
    [
        pytest.param({"br0": ["x"], "br1": ["x"]}, {"x": "br0"}, id="two owners"),
        pytest.param({"br0": ["x"]}, {"x": "br1"}, id="another owner"),
        pytest.param({"br0": ["x"]}, {}, id="no node"),
        pytest.param({"br0": []}, {"x": "br0"}, id="no owner"),
    ],
)
def test_a_bundle_has_one_owner_the_one_that_its_node_names(owned: dict[str, list[str]], nodes: dict[str, str]) -> None:
    check_owners({"br0": ["x", "y"], "br1": []}, {"x": "br0", "y": "br0"})
    with pytest.raises(ViolationError) as caught:
        check_owners(owned, nodes)
    assert caught.value.name == "OneOwnerPerBundle"

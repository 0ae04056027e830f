from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.ledger.striping import Striping
from quire.ledger.writing.ack_tracker import AckTracker
from tests.support.datadriven import Line, check, transcript


class NaiveTracker:
    """The same tracker, entry by entry, directly from the definition."""

    def __init__(self, striping: Striping, ack_quorum: int) -> None:
        self.striping = striping
        self.ack_quorum = ack_quorum
        self.acks: list[set[int]] = []
        self.failed: set[int] = set()
        self.confirmed = -1
        self.since = [0] * striping.ensemble_size
        """Return the first entry that the bookie at an index must have."""

    def pushed(self, last: int) -> None:
        self.acks += [set() for _ in range(last + 1 - len(self.acks))]

    def acked(self, index: int, first: int, last: int) -> list[int]:
        if index not in self.failed:
            for entry_id in range(first, last + 1):
                if index in self.striping.write_set(entry_id):
                    self.acks[entry_id].add(index)
        return self.advance()

    def replaced(self, index: int) -> None:
        self.failed.discard(index)
        self.since[index] = self.confirmed + 1
        for acks in self.acks[self.confirmed + 1 :]:
            acks.discard(index)

    def advance(self) -> list[int]:
        confirmed = []
        while (
            not self.failed
            and self.confirmed + 1 < len(self.acks)
            and len(self.acks[self.confirmed + 1]) >= self.ack_quorum
        ):
            self.confirmed += 1
            confirmed.append(self.confirmed)
        return confirmed


@pytest.mark.parametrize(("write_quorum", "last"), [(3, 1), (2, 2)], ids=["on all bookies", "striped"])
def test_six_acks_in_any_of_their_720_orders_confirm_in_entry_order_and_at_the_earliest(write_quorum: int, last: int):
    striping = Striping(3, write_quorum)
    acks = [(index, entry_id) for entry_id in range(last + 1) for index in striping.write_set(entry_id)]
    assert len(acks) == 6
    for order in itertools.permutations(acks):
        tracker = AckTracker(striping, 2)
        naive = NaiveTracker(striping, 2)
        tracker.pushed(0, last)
        naive.pushed(last)
        confirmed: list[int] = []
        for index, entry_id in order:
            now = list(tracker.acked(index, entry_id, entry_id))
            assert now == naive.acked(index, entry_id, entry_id), order
            confirmed += now
        assert confirmed == list(range(last + 1))


quorums = st.integers(1, 6).flatmap(
    lambda size: st.integers(1, size).flatmap(
        lambda write: st.tuples(st.just(size), st.just(write), st.integers(1, write))
    )
)


@settings(deadline=None)
@given(quorums, st.data())
def test_runs_of_acks_failures_and_replacements_do_what_the_definition_says(quorum, data):
    size, write_quorum, ack_quorum = quorum
    striping = Striping(size, write_quorum)
    tracker = AckTracker(striping, ack_quorum)
    naive = NaiveTracker(striping, ack_quorum)
    pushed = -1
    for _ in range(data.draw(st.integers(1, 40))):
        kind = data.draw(st.sampled_from(["push", "ack", "ack", "ack", "fail", "replace"]))
        index = data.draw(st.integers(0, size - 1))
        if kind == "push" or pushed < 0:
            last = pushed + data.draw(st.integers(1, 9))
            tracker.pushed(pushed + 1, last)
            naive.pushed(last)
            pushed = last
        elif kind == "ack":
            first = data.draw(st.integers(0, pushed))
            last = data.draw(st.integers(first, pushed))
            assert list(tracker.acked(index, first, last)) == naive.acked(index, first, last)
        elif kind == "fail":
            tracker.failed(index)
            naive.failed.add(index)
        elif index in naive.failed:
            tracker.replaced(index)
            naive.replaced(index)
            assert list(tracker.resume()) == naive.advance()
        assert tracker.confirmed == naive.confirmed
        for each in sorted(set(range(size)) - naive.failed):
            own = [entry_id for entry_id in range(naive.since[each], pushed + 1) if striping.stores(each, entry_id)]
            lacking = [entry_id for entry_id in own if each not in naive.acks[entry_id]]
            for entry_id in range(naive.since[each], pushed + 1):
                assert tracker.lacks(each, entry_id) == (bool(lacking) and lacking[0] <= entry_id)
            assert tracker.lacked(each) == len([entry_id for entry_id in lacking if entry_id <= naive.confirmed])


def transcribed(command: Line, steps: Sequence[Line]) -> list[str]:
    """Return the effect of each step on one tracker."""
    if command.name != "tracker":
        raise command.unknown()
    striping = Striping(command.option_number("ensemble"), command.option_number("write"))
    tracker = AckTracker(striping, command.option_number("ack"), confirmed=command.option_number("confirmed", -1))
    moment: object = None

    def answer(step: Line) -> str:
        nonlocal moment
        match step.name:
            case "push":
                tracker.pushed(*step.span())
            case "ack":
                return confirms(tracker.acked(step.number(), *step.span()))
            case "fail":
                tracker.failed(step.number())
            case "replace":
                tracker.replaced(step.number())
            case "resume":
                return confirms(tracker.resume())
            case "lacks":
                return yes(tracker.lacks(step.number(), step.number()))
            case "sent":
                return yes(tracker.sent(*step.span()))
            case "moment":
                moment = tracker.moment()
            case "overdue":
                return yes(tracker.overdue(step.number(), moment))
            case "unconfirmed":
                return yes(tracker.unconfirmed(moment))
            case "waits":
                return yes(tracker.waits(step.number()))
            case _:
                raise step.unknown()
        return f"pushed {tracker.pushed_last}, confirmed {tracker.confirmed}"

    def confirms(entries: range) -> str:
        assert not entries or entries[-1] == tracker.confirmed
        return f"confirms {entries[0]}..{entries[-1]}" if entries else "confirms nothing"

    return transcript(steps, answer)


def yes(true: bool) -> str:
    return "yes" if true else "no"


def test_cases() -> None:
    check(Path(__file__).parent / "testdata" / "ack_tracker.txt", transcribed)

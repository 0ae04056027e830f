from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.dispatch.policies.redelivery import PendingAcks, Redelivery
from cursors import redelivery_counts
from quire.ledger.position import Position
from tests.support.datadriven import Line, check, transcript


def at(word: str) -> Position:
    ledger_id, _, entry_id = word.partition(":")
    return Position(int(ledger_id), int(entry_id))


def named(position: Position) -> str:
    return f"{position.ledger_id}:{position.entry_id}"


def transcribed(command: Line, steps: Sequence[Line]) -> list[str]:
    """Return the effect of each step on the waiting entries, or on those that one consumer holds."""
    match command.name:
        case "redelivery":
            return transcript(steps, waiting(command), ())
        case "held":
            return transcript(steps, holding(PendingAcks()), ())
    raise command.unknown()


def waiting(command: Line) -> Callable[[Line], str]:
    groups = moves(command)
    replay = Redelivery(groups.get) if groups else Redelivery()

    def answer(step: Line) -> str:
        match step.name:
            case "add":
                again = step.option("again", "no")
                replay.add(at(step.word()), step.option_number("hash", 0), again={"yes": True, "no": False}[again])
            case "discard":
                keep = step.option("keep", "nothing")
                replay.discard(at(step.word()), keep_count={"count": True, "nothing": False}[keep])
            case "acked":
                ledger_id, (first, stop), but = step.number(), step.span(), step.option_number("but", -1)
                replay.discard_acked(lambda position: position.entry_id != but, ledger_id, first, stop)
            case "first":
                if groups:
                    found = replay.first_run(
                        step.number(), [each for each in step.option("groups").split(",") if each != "-"]
                    )
                else:
                    found = replay.first_run(step.number())
                return f"{named(found[0])} and {found[1] - 1} more" if found else "nothing"
            case "reach":
                names = step.option("groups", "-").split(",")
                wanted, gap, most = (step.option_number(name) for name in ("wanted", "gap", "most"))
                return str(replay.reach(at(step.word()), wanted, gap, most, names if groups else (True,)))
            case "count":
                return str(replay.count(at(step.word())))
            case "hash":
                return str(replay.hash_of(at(step.word())))
            case "group":
                groups.update(moves(step))
                return " ".join(f"{key_hash}={group}" for key_hash, group in groups.items())
            case "regroup":
                replay.regroup(step.number() if step.words else None)
                return "settled" if replay.is_settled else "not settled"
            case "settle":
                count = replay.settle(step.number())
                return f"{count} looked at, {'settled' if replay.is_settled else 'not settled'}"
            case "clear":
                replay.clear()
            case "state":
                return (
                    f"{len(replay)} wait, hashes {dict(replay.hashes)}, {'known' if replay.knows else 'nothing known'}"
                )
            case _:
                raise step.unknown()
        return f"{len(replay)} wait"

    return answer


def moves(line: Line) -> dict[int, str | None]:
    """Return the groups of hashes in the line's options; None for a group `-`."""
    return {int(each): None if group == "-" else group for each in [*line.options] for group in [line.option(each)]}


def holding(held: PendingAcks) -> Callable[[Line], str]:
    def answer(step: Line) -> str:
        position, answered = at(step.word()) if step.name != "clear" else None, None
        if position is None:
            held.clear()
        elif step.name == "add":
            held.add(position, step.option_number("messages"), step.option_number("hash", 0))
        elif step.name == "pop":
            entry = held.pop(position)
            answered = f"{entry.messages} messages of hash {entry.key_hash}" if entry else "not held"
        elif step.name == "reduce":
            fewer = held.reduce(position, step.option_number("messages"))
            answered = "not held" if fewer is None else f"{fewer} fewer"
        elif step.name == "messages-of":
            answered = str(held.messages_of(position))
        else:
            raise step.unknown()
        assert len(held) == len(held.hashes()) == len(held.positions())
        state = f"{' '.join(map(named, held.positions())) or 'nothing'}, {held.messages} messages"
        return f"{answered}; {state}" if answered else state

    return answer


def test_cases() -> None:
    check(Path(__file__).parent / "testdata" / "redelivery.txt", transcribed)


def test_what_a_call_costs_does_not_grow_with_what_waits_for_others() -> None:
    asked: list[int] = []

    def group_of(key_hash: int) -> str:
        asked.append(key_hash)
        return "mine" if key_hash == 0 else "theirs"

    replay = Redelivery(group_of)
    for entry_id in range(20_000):
        replay.add(Position(1, entry_id), entry_id % 10_000, again=False)
    asked.clear()
    assert replay.first_run(100, ["mine"]) == (Position(1, 0), 100)
    assert len(asked) == 1


def test_counts_are_bounded_and_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    replay = Redelivery()
    monkeypatch.setattr(redelivery_counts, "COUNTS_MAX", 3)
    for entry_id in range(5):
        replay.add(Position(1, entry_id), 0, again=True)
    assert [replay.count(Position(1, entry_id)) for entry_id in range(5)] == [0, 0, 1, 1, 1]
    assert len(replay) == 5


def test_memory_does_not_grow_while_the_oldest_entry_is_stuck() -> None:
    replay = Redelivery()
    replay.add(Position(1, 0), 3, again=False)
    for _ in range(10_000):
        replay.add(Position(1, 9), 3, again=True)
        replay.discard(Position(1, 9), keep_count=True)
    assert sum(map(len, replay._heaps.values())) < 100
    for entry_id in range(10_000):
        replay.add(Position(1, 10 + entry_id), 10 + entry_id, again=True)
        replay.discard(Position(1, 10 + entry_id))
    assert sum(map(len, replay._heads.values())) < 100


@given(
    st.lists(
        st.tuples(st.sampled_from("aadk"), st.integers(1, 2), st.integers(0, 12)),
        max_size=150,
    ),
    st.sets(st.integers(0, 3)),
)
def test_it_is_a_sorted_set(steps: list[tuple[str, int, int]], blocked: set[int]) -> None:
    replay = Redelivery(lambda key_hash: key_hash)
    model: set[Position] = set()
    for action, ledger_id, entry_id in steps:
        position = Position(ledger_id, entry_id)
        if action == "a":
            replay.add(position, entry_id % 4, again=bool(entry_id & 1))
            model.add(position)
        else:
            replay.discard(position, keep_count=action == "k")
            model.discard(position)
        assert len(replay) == len(model)
        able = sorted(each for each in model if each.entry_id % 4 not in blocked)
        found = replay.first_run(5, {0, 1, 2, 3} - blocked)
        if not able:
            assert found is None
            continue
        first = able[0]
        count = 1
        while count < 5 and Position(first.ledger_id, first.entry_id + count) in model:
            count += 1
        assert found == (first, count)
    replay.clear()
    assert len(replay) == 0
    assert not replay.hashes

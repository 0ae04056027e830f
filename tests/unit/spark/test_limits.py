from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.spark.limits import Backlog, Limits, share
from tests.support.datadriven import Line
from tests.support.dialogues import Dialogue, dialogues

PIECES = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 5000)), max_size=4)
RATES = st.floats(0.001, 500)
BACKLOGS = st.lists(st.builds(Backlog, PIECES, RATES), min_size=1, max_size=5)
LIMITS = st.builds(
    lambda messages, size: Limits(messages_max=messages, bytes_max=size),
    st.none() | st.integers(1, 3000),
    st.none() | st.integers(1, 20_000),
)


def backlog(entries: int, *, each: int = 100, messages: float = 1.0) -> Backlog:
    return Backlog([(entries, entries * each)] if entries else [], messages)


def cost(backlogs: list[Backlog], taken: list[int]) -> tuple[float, float]:
    pairs = list(zip(backlogs, taken, strict=True))
    return sum(each.messages(n) for each, n in pairs), sum(each.bytes(n) for each, n in pairs)


def is_within(backlogs: list[Backlog], taken: list[int], limits: Limits) -> bool:
    messages, size = cost(backlogs, taken)
    return (limits.messages_max is None or messages <= limits.messages_max + 1e-3) and (
        limits.bytes_max is None or size <= limits.bytes_max + 1e-3
    )


def backlog_of(text: str) -> Backlog:
    """Return the backlog of `100`, entries of 100 bytes, or of `10x10+10x1000@2`: 10 of 10 bytes and 10 of 1000, with 2
    messages each."""
    pieces, _, messages = text.partition("@")
    if "x" not in pieces:
        return backlog(int(pieces), messages=float(messages or 1))
    pairs = [tuple(map(int, each.split("x"))) for each in pieces.split("+")]
    return Backlog([(count, count * size) for count, size in pairs], float(messages or 1))


def limits_of(step: Line) -> Limits:
    return Limits(
        messages_max=step.option_number("messages", 0) or None, bytes_max=step.option_number("bytes", 0) or None
    )


@pytest.mark.parametrize("dialogue", dialogues(Path(__file__).parent / "testdata" / "limits.txt"))
def test_what_a_trigger_takes(dialogue: Dialogue) -> None:
    """`share 100 100 messages=20` shows the entries that are taken of each partition, and `asked` what limits hold if
    Spark asks for some beside the 100 messages and 1000 bytes that are configured."""

    def answer(step: Line) -> str:
        if step.name == "share":
            turn = step.option_number("turn", 0)
            backlogs = [backlog_of(each) for each in step.words]
            step.words = []
            return " ".join(map(str, share(backlogs, limits_of(step), turn=turn))) or "nothing"
        asked = SimpleNamespace(**{name: int(value) for name, value in step.options.items()})
        step.options = {}
        found = Limits.of(asked, Limits(messages_max=100, bytes_max=1000))
        return f"{found.messages_max} messages, {found.bytes_max} bytes"

    dialogue.check(answer)


def test_partitions_of_different_length_come_to_their_ends_together() -> None:
    lengths, triggers = [1000, 100, 10], 0
    while sum(lengths):
        taken = share([backlog(length) for length in lengths], Limits(messages_max=111))
        lengths = [length - n for length, n in zip(lengths, taken, strict=True)]
        triggers += 1
        for length, whole in zip(lengths, [1000, 100, 10], strict=True):
            assert abs(length / whole - (1 - triggers / 10)) <= 1 / whole + 1e-3
    assert triggers == 10


@settings(deadline=None)
@given(BACKLOGS, LIMITS, st.integers(0, 10))
def test_a_trigger_is_within_its_limits_or_one_entry(backlogs: list[Backlog], limits: Limits, turn: int) -> None:
    taken = share(backlogs, limits, turn=turn)
    assert all(0 <= n <= each.entries for each, n in zip(backlogs, taken, strict=True))
    assert is_within(backlogs, taken, limits) or sum(taken) == 1


@settings(deadline=None)
@given(BACKLOGS, LIMITS, st.integers(0, 10))
def test_one_more_entry_of_every_unfinished_partition_would_be_too_much(
    backlogs: list[Backlog], limits: Limits, turn: int
) -> None:
    taken = share(backlogs, limits, turn=turn)
    more = [min(n + 1, each.entries) for n, each in zip(taken, backlogs, strict=True)]
    assert more == taken or not is_within(
        backlogs, more, Limits(messages_max=_less(limits.messages_max), bytes_max=_less(limits.bytes_max))
    )


def _less(most: int | None) -> int | None:
    """Return one less: a sum as large as the limit may have been rounded above it."""
    return None if most is None else most - 1


@settings(deadline=None)
@given(st.lists(st.integers(0, 200), min_size=1, max_size=6), st.integers(1, 400), st.integers(0, 10))
def test_partitions_give_the_same_fraction_up_to_one_entry(entries: list[int], most: int, turn: int) -> None:
    taken = share([backlog(n) for n in entries], Limits(messages_max=most), turn=turn)
    assert sum(taken) == min(sum(entries), most)
    fraction = min(1.0, most / max(1, sum(entries)))
    assert all(abs(n - fraction * there) < 1 + 1e-3 for n, there in zip(taken, entries, strict=True))


@settings(deadline=None)
@given(PIECES, RATES, st.floats(0, 10_000), st.floats(0, 30_000))
def test_within_is_the_most_that_fits(pieces: list[tuple[int, int]], rate: float, messages: float, size: float) -> None:
    each = Backlog(pieces, rate)
    n = each.within(messages, size)
    assert 0 <= n <= each.entries
    assert each.messages(n) <= messages + 1e-3
    assert each.bytes(n) <= size + 1e-3
    if n < each.entries:
        assert each.messages(n + 1) > messages - 1e-3 or each.bytes(n + 1) > size - 1e-3

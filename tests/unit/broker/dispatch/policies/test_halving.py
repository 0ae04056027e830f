from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from broker.dispatch.policies.halving import Halving
from tests.support.datadriven import Line, check


def transcribed(command: Line, steps: Sequence[Line]) -> list[str]:
    """Return the places that a search asks about, with the times there, and the place it finds.

    Times are given as runs `first..last step`, one time for each place."""
    if command.name != "search":
        raise command.unknown()
    since = command.option_number("since")
    times: list[int] = []
    for step in steps:
        if step.name != "times":
            raise step.unknown()
        first, last = step.span()
        times += range(first, last + 1, step.option_number("step", 1))
        step.check_used()
    low, high = command.option_number("from", 0), len(times)
    search = Halving(low, high, first_alone=command.option("first-alone", "no") == "yes")
    asked: list[str] = []
    while (place := search.place) is not None:
        asked.append(f"{place}:{times[place]}")
        search.answer(before=times[place] < since)
    command.check_used()
    return [f"asked {' '.join(asked) or 'nothing'}", f"found {search.found} of {high}"]


def test_cases() -> None:
    check(Path(__file__).parent / "testdata" / "halving.txt", transcribed)


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(-1, 31), st.integers(0, 40), st.booleans())
def test_what_is_found_is_a_place_where_the_times_pass(times: list[int], since: int, low: int, first: bool) -> None:
    low = min(low, len(times))
    search = Halving(low, len(times), first_alone=first)
    questions = 0
    while (place := search.place) is not None:
        questions += 1
        search.answer(before=times[place] < since)
    found = search.found
    assert found == low or times[found - 1] < since
    assert found == len(times) or times[found] >= since
    assert questions <= (len(times) - low).bit_length() + 1
    if times == sorted(times):
        assert found == max(low, sum(each < since for each in times))

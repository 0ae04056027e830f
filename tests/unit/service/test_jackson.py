"""quire.service.jackson"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.service.jackson import STEP_CHARACTERS, as_json, pretty, writing

GOLDEN = Path(__file__).parents[2] / "golden/bookkeeper/http/http.json"
CONFIG = "/api/v1/config/server_config"
BODIES = [
    call["body"]
    for call in json.loads(GOLDEN.read_text())
    if call["body"].startswith(("{", "["))
    and call["body"].isascii()
    and "\\u" not in call["body"]
    and call["path"] != CONFIG
]
"""Recorded bodies, without those that have raw bytes of metadata, whose escapes differ, and one recorded in part."""


def test_bodies_of_the_original_are_written_byte_for_byte() -> None:
    assert len(BODIES) > 10
    for body in BODIES:
        assert pretty(json.loads(body)) == body


@pytest.mark.parametrize(
    ("value", "text"),
    [({}, "{ }"), ([], "[ ]"), ({1: None}, '{\n  "1" : null\n}'), ("a\nb", '"a\\nb"'), (0, "0"), (True, "true")],
)
def test_small_values(value: object, text: str) -> None:
    assert bytes(as_json(value).body).decode() == text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_whatever_is_written_reads_back(value: object) -> None:
    assert json.loads(pretty(value)) == value


def written(members: dict[str, object]) -> tuple[str, int]:
    """Return the text, and the number of steps but the last."""
    steps = writing(members.items())
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value.decode(), count
        count += 1


@given(st.dictionaries(st.text(), VALUES), st.sampled_from([1, 20, STEP_CHARACTERS]))
def test_an_object_in_steps_has_the_same_text(members: dict[str, object], characters: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quire.service.jackson.STEP_CHARACTERS", characters)
        assert written(members)[0] == pretty(members)


def test_a_step_writes_a_bounded_number_of_characters() -> None:
    members: dict[str, object] = {str(number): [number] * 10 for number in range(2000)}
    text, steps = written(members)
    assert text == pretty(members)
    assert steps >= len(text) // (STEP_CHARACTERS + 100)

"""JSON in steps: the same bytes as in one call, and a bounded number of members in each step."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.service.web import json_steps
from quire.service.web.json_steps import MEMBERS_TOGETHER, encoding
from tests.support.refusals import refuses

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=40,
)


def encoded(value: object) -> tuple[bytes, int]:
    """Return the JSON, and the number of steps but the last."""
    steps = encoding(value)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, count
        count += 1


def at_once(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


class Shown(NamedTuple):
    """A record that is encoded by another shape."""

    name: str

    def as_json(self) -> dict[str, object]:
        return {"called": self.name, "parts": []}


def test_a_record_is_encoded_as_what_it_shows_of_itself() -> None:
    assert encoded({"one": Shown("a"), "more": [Shown("b")]})[0] == at_once(
        {"one": {"called": "a", "parts": []}, "more": [{"called": "b", "parts": []}]}
    )


@given(value=VALUES, together=st.sampled_from([1, 2, MEMBERS_TOGETHER]))
def test_a_value_is_encoded_as_in_one_call(value: object, together: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_steps, "MEMBERS_TOGETHER", together)
        assert encoded(value)[0] == at_once(value)


@pytest.mark.parametrize(
    "value",
    [
        list(range(20_000)),
        {str(number): number for number in range(20_000)},
        {"partitions": {str(number): {"a": 1, "s": {"b": [number]}} for number in range(5000)}},
        [[number] for number in range(10_000)],
    ],
)
def test_no_step_encodes_more_members_than_it_may(value: object) -> None:
    found, steps = encoded(value)
    assert found == at_once(value)
    assert steps >= 10


@pytest.mark.parametrize("value", [float("nan"), {"a": [float("inf")]}])
def test_a_number_that_json_does_not_have_is_refused(value: object) -> None:
    refuses(ValueError, lambda: encoded(value))

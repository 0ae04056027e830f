"""bench.waiting"""

from __future__ import annotations

from itertools import count

import pytest

from bench.waiting import poll_until


def test_what_comes_to_hold_is_waited_for_and_not_longer() -> None:
    asked = count(1)
    assert poll_until(lambda: next(asked) == 3, 10.0, poll_s=0.0)
    assert next(asked) == 4


@pytest.mark.parametrize("seconds", [0.0, 0.02])
def test_what_never_holds_is_given_up_at_the_deadline(seconds: float) -> None:
    assert not poll_until(lambda: False, seconds, poll_s=0.001)

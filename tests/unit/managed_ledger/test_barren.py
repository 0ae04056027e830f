from __future__ import annotations

from random import Random

from managed_ledger.writing.barren import RETRY_FIRST_S, RETRY_MAX_S, BarrenLedgers


class Longest(Random):
    """Random numbers that shorten no pause."""

    def random(self) -> float:
        return 0.0


def test_pauses_double_up_to_a_bound_and_end_at_one_deadline() -> None:
    barren, now, pauses = BarrenLedgers(10.0, Longest()), 100.0, list[float]()
    while True:
        pause_s, deadline = barren.failed(now)
        assert deadline == 110.0
        if pause_s is None:
            break
        pauses.append(pause_s)
        now += pause_s
    assert pauses[:3] == [RETRY_FIRST_S, 2 * RETRY_FIRST_S, 4 * RETRY_FIRST_S]
    assert max(pauses) == RETRY_MAX_S
    assert 10.0 - RETRY_MAX_S < sum(pauses) <= 10.0


def test_after_giving_up_and_after_a_fruitful_ledger_it_begins_anew() -> None:
    barren = BarrenLedgers(1.0, Longest())
    assert barren.failed(5.0) == (RETRY_FIRST_S, 6.0)
    assert barren.failed(7.0) == (None, 6.0)
    assert barren.failed(7.0) == (RETRY_FIRST_S, 8.0)
    barren.fruitful()
    assert barren.failed(7.5) == (RETRY_FIRST_S, 8.5)

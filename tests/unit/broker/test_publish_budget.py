"""The budget of published and unconfirmed bytes: waiting connections are woken once, when it is low."""

from __future__ import annotations

import trio

from broker.publish_budget import PublishBudget


def test_it_is_low_up_to_half_of_its_limit() -> None:
    budget = PublishBudget(100)
    budget.take(50)
    assert budget.is_low
    budget.take(1)
    assert not budget.is_low
    budget.give(1)
    assert budget.is_low


def test_those_who_wait_are_told_when_it_is_low_and_not_before() -> None:
    budget, first, second = PublishBudget(100), trio.Event(), trio.Event()
    budget.take(120)
    budget.tell(first)
    budget.tell(second)
    budget.give(60)
    assert not first.is_set()
    budget.forget(second)
    budget.give(10)
    assert (first.is_set(), second.is_set(), budget.bytes) == (True, False, 50)
    budget.give(50)
    budget.forget(first)
    assert budget.bytes == 0

"""The table of what a lookup is answered."""

from __future__ import annotations

import itertools
from functools import partial

import pytest

from broker.ownership.lookup import Chosen, Has, Leader, Step, decide

EVERY = [
    partial(decide, authoritative=authoritative, leader=leader, chosen=chosen)
    for authoritative, leader, chosen in itertools.product((False, True), Leader, Chosen)
]
"""A lookup from anybody, to anybody."""


@pytest.mark.parametrize(
    ("has", "step"),
    [
        (Has.ME, Step.CONNECT_TO_ME),
        (Has.ANOTHER, Step.CONNECT_TO_OWNER),
        (Has.ME_UNLOADING, Step.WAIT),
        (Has.ANOTHER_UNLOADING, Step.WAIT),
        (Has.ANOTHER_GONE, Step.WAIT),
    ],
)
def test_a_bundle_that_somebody_has_is_answered_alike_whoever_asks(has: Has, step: Step) -> None:
    assert {lookup(has, stopping=stopping) for lookup in EVERY for stopping in (False, True)} == {step}


def test_what_the_process_before_had_is_taken_without_asking_the_leader() -> None:
    assert decide(Has.ME_BEFORE, leader=Leader.ANOTHER, chosen=Chosen.ANOTHER) is Step.ACQUIRE
    assert decide(Has.ME_BEFORE, stopping=True) is Step.WAIT


def test_who_is_told_to_take_a_free_bundle_takes_it() -> None:
    assert decide(Has.NOBODY, authoritative=True, leader=Leader.ANOTHER, chosen=Chosen.ANOTHER) is Step.ACQUIRE


def test_who_does_not_lead_sends_to_the_leader() -> None:
    assert decide(Has.NOBODY, leader=Leader.ANOTHER, chosen=Chosen.ME) is Step.REDIRECT_TO_LEADER


@pytest.mark.parametrize("leader", [Leader.ME, Leader.NONE])
def test_the_leader_or_anybody_where_there_is_none_decides(leader: Leader) -> None:
    assert decide(Has.NOBODY, leader=leader, chosen=Chosen.ME) is Step.ACQUIRE
    assert decide(Has.NOBODY, leader=leader, chosen=Chosen.ANOTHER) is Step.REDIRECT_TO_CHOSEN
    assert decide(Has.NOBODY, leader=leader, chosen=Chosen.NOBODY) is Step.REFUSE


def test_a_broker_that_stops_takes_nothing() -> None:
    steps = {lookup(Has.NOBODY, stopping=True) for lookup in EVERY}
    assert steps == {Step.REDIRECT_TO_LEADER, Step.REDIRECT_TO_CHOSEN, Step.REFUSE}

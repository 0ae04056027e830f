from __future__ import annotations

import random
from typing import Any, cast

import pytest

from quire.ledger.errors import PlacementPolicyError
from quire.ledger.placement import Adherence, GuardedPlacement, PlacementConfig, fixed_cluster, make_placement
from tests.unit.ledger.placement.clusters import Health, always, cluster_of


class Answers:
    """A policy that returns given answers."""

    def __init__(self, *answer: str) -> None:
        self.answer = answer

    def new_ensemble(self, *args: object) -> tuple[str, ...]:
        return self.answer

    replace_bookie = new_ensemble

    def adherence(self, *args: object) -> Adherence:
        return Adherence.FAIL


@pytest.mark.parametrize(
    "answer",
    [("b00:3181",), ("b00:3181", "b00:3181"), ("b00:3181", "stranger:1"), ("b00:3181", "b03:3181")],
    ids=["too few", "twice", "a stranger", "excluded"],
)
def test_what_a_policy_must_not_answer_is_refused(answer: tuple[str, ...]) -> None:
    placement = GuardedPlacement(cast(Any, Answers(*answer)), always(cluster_of([None] * 4)))
    with pytest.raises(PlacementPolicyError, match="2 distinct bookies are wanted"):
        placement.new_ensemble(2, 2, 2, exclude=["b03:3181"])


def test_a_replacement_that_touches_others_or_takes_a_member_is_refused() -> None:
    cluster = always(cluster_of([None] * 4))
    members = ("b00:3181", "b01:3181")
    with pytest.raises(PlacementPolicyError, match=r"did not fail, at \[1\]"):
        GuardedPlacement(cast(Any, Answers("b02:3181", "b03:3181")), cluster).replace_bookie(
            2, 2, 2, members, {0: "b00:3181"}
        )
    with pytest.raises(PlacementPolicyError, match="may not be chosen"):
        GuardedPlacement(cast(Any, Answers("b00:3181", "b01:3181")), cluster).replace_bookie(
            2, 2, 2, members, {0: "b00:3181"}
        )


def test_an_ensemble_that_fails_the_policy_is_told_once_for_each_state_of_the_cluster(log_events: list[dict[str, Any]]):
    now = cluster_of(["/a"] * 3)
    placement = make_placement(PlacementConfig(), lambda: now, random.Random(0))
    placement.new_ensemble(1, 1, 1)
    assert not log_events
    placement.new_ensemble(2, 2, 2)
    placement.replace_bookie(2, 2, 2, now.writable[:2], {0: now.writable[0]})
    now = cluster_of(["/a"] * 4)
    placement.new_ensemble(2, 2, 2)
    assert [(each["level"], each["writable"]) for each in log_events] == [("warning", 3), ("warning", 4)]


def test_the_rest_is_the_policys() -> None:
    cluster = cluster_of(["/a", "/a"])
    placement = make_placement(PlacementConfig(), always(cluster), random.Random(0))
    assert placement.adherence(cluster.writable, 2, 2) is Adherence.FAIL
    assert placement.read_order(cluster.writable, [1, 0], Health(failed={"b01:3181": 1.0})) == [0, 1]


def test_a_fixed_cluster_is_the_same_until_its_bookies_change() -> None:
    ids = ["b:1", "a:1", "a:1"]
    cluster = fixed_cluster(lambda: ids)
    first = cluster()
    assert first.writable == ("a:1", "b:1")
    assert cluster() is first
    ids.append("c:1")
    assert cluster().writable == ("a:1", "b:1", "c:1")

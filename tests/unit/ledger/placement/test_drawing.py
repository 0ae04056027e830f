from __future__ import annotations

import random

import pytest

from quire.ledger.errors import NotEnoughBookiesError
from quire.ledger.placement.drawing import candidates, check_candidates, draw_weights, shuffled
from quire.ledger.placement.policy import PlacementConfig
from tests.unit.ledger.placement.clusters import cluster_of


def test_who_weighs_nothing_or_is_not_known_counts_as_the_least_of_the_others() -> None:
    assert draw_weights([0, 30, 20], 0) == [20.0, 30.0, 20.0]


def test_nobody_counts_for_more_than_the_bound_of_medians_and_0_is_no_bound() -> None:
    assert draw_weights([10, 10, 1000], 3) == [10.0, 10.0, 30.0]
    assert draw_weights([10, 10, 1000], 0) == [10.0, 10.0, 1000.0]


def test_where_nothing_is_known_all_count_alike() -> None:
    assert draw_weights([0, 0, 0], 3) == [1.0, 1.0, 1.0]


def test_a_median_of_nothing_bounds_nothing() -> None:
    assert draw_weights([0, 0, 0, 7], 3) == [7.0, 7.0, 7.0, 7.0]


@pytest.mark.parametrize("disk_weighted", [False, True])
def test_a_draw_holds_everybody_once_and_follows_from_the_seed(disk_weighted: bool) -> None:
    cluster = cluster_of([None] * 9, weights={"b03:3181": 5, "b04:3181": 9})
    config = PlacementConfig(disk_weighted=disk_weighted)
    orders = [shuffled(cluster.writable, cluster, config, random.Random(seed)) for seed in (1, 1, 2)]
    assert all(sorted(order) == list(cluster.writable) for order in orders)
    assert orders[0] == orders[1] != orders[2]


def test_candidates_are_the_writable_without_the_excluded_sorted() -> None:
    cluster = cluster_of([None] * 3, read_only=frozenset(["z:1"]))
    assert candidates(cluster, ["b01:3181", "unknown:1"]) == ["b00:3181", "b02:3181"]
    with pytest.raises(NotEnoughBookiesError, match="3 bookies, 2 are available"):
        check_candidates(3, ["a", "b"])

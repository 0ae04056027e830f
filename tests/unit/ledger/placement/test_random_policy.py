from __future__ import annotations

import random

import pytest

from quire.ledger.errors import NotEnoughBookiesError
from quire.ledger.placement import PlacementConfig, RandomPolicy, choose_ensemble
from tests.unit.ledger.placement.clusters import always, cluster_of

BOOKIES = [f"bookie{i}:3181" for i in range(6)]


def test_an_ensemble_has_distinct_bookies_and_every_bookie_gets_its_share() -> None:
    rng = random.Random(1)
    ensembles = [choose_ensemble(BOOKIES, 3, rng) for _ in range(300)]
    assert all(len(set(ensemble)) == 3 for ensemble in ensembles)
    assert all(sum(each in ensemble for ensemble in ensembles) > 100 for each in BOOKIES)


def test_the_choice_follows_from_the_seed_and_not_from_the_order_of_arrival() -> None:
    assert choose_ensemble(BOOKIES, 4, random.Random(3)) == choose_ensemble(BOOKIES[::-1], 4, random.Random(3))


def test_a_bookie_named_twice_counts_once() -> None:
    with pytest.raises(NotEnoughBookiesError):
        choose_ensemble(["a:1", "a:1"], 2, random.Random(0))


def test_with_disk_weights_a_bookie_with_twice_the_space_is_drawn_twice_as_often() -> None:
    ids = [f"b{number:02}:3181" for number in range(4)]
    weights = dict(zip(ids, [100, 200, 100, 200], strict=True))
    cluster = cluster_of([None] * 4, weights=weights)
    policy = RandomPolicy(PlacementConfig(disk_weighted=True), always(cluster), random.Random(6))
    drawn = [policy.new_ensemble(1, 1, 1)[0] for _ in range(3000)]
    assert [round(drawn.count(each) / 500) for each in ids] == [1, 2, 1, 2]

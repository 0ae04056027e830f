from __future__ import annotations

import random

import pytest

from quire.ledger.errors import NotEnoughBookiesError
from quire.ledger.placement import Adherence, PlacementConfig, RandomPolicy, choose_ensemble, replace_bookies
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


def test_only_failed_bookies_are_replaced_by_bookies_that_are_neither_members_nor_to_be_avoided() -> None:
    for seed in range(50):
        changed = replace_bookies(BOOKIES, BOOKIES[:3], {0, 2}, random.Random(seed), avoid=[BOOKIES[5]])
        assert changed[1] == BOOKIES[1]
        assert {changed[0], changed[2]} == {BOOKIES[3], BOOKIES[4]}


def test_too_few_replacements_are_said_to_be_too_few() -> None:
    with pytest.raises(NotEnoughBookiesError, match="2 bookies of the ensemble failed, 1 others"):
        replace_bookies(BOOKIES[:4], BOOKIES[:3], [0, 1], random.Random(0))


@pytest.mark.parametrize("disk_weighted", [False, True])
def test_the_policy_leaves_out_who_is_excluded_and_meets_itself(disk_weighted: bool) -> None:
    cluster = cluster_of([None] * 6)
    ids = cluster.writable
    policy = RandomPolicy(PlacementConfig(disk_weighted=disk_weighted), always(cluster), random.Random(5))
    for _ in range(50):
        ensemble = policy.new_ensemble(3, 2, 2, exclude=[ids[0]])
        assert len(set(ensemble)) == 3
        assert ids[0] not in ensemble
        changed = policy.replace_bookie(3, 2, 2, ensemble, {1: ensemble[1]}, exclude=[ids[0]])
        assert (changed[0], changed[2]) == (ensemble[0], ensemble[2])
        assert changed[1] not in (*ensemble, ids[0])
        assert policy.adherence(changed, 2, 2) is Adherence.MEETS_STRICT
    with pytest.raises(NotEnoughBookiesError):
        policy.new_ensemble(3, 2, 2, exclude=ids[:4])
    with pytest.raises(NotEnoughBookiesError):
        policy.replace_bookie(3, 2, 2, ids[:3], {0: ids[0]}, exclude=ids[3:])


def test_with_disk_weights_a_bookie_with_twice_the_space_is_drawn_twice_as_often() -> None:
    ids = [f"b{number:02}:3181" for number in range(4)]
    weights = dict(zip(ids, [100, 200, 100, 200], strict=True))
    cluster = cluster_of([None] * 4, weights=weights)
    policy = RandomPolicy(PlacementConfig(disk_weighted=True), always(cluster), random.Random(6))
    drawn = [policy.new_ensemble(1, 1, 1)[0] for _ in range(3000)]
    assert [round(drawn.count(each) / 500) for each in ids] == [1, 2, 1, 2]

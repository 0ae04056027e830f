from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

from hypothesis import given, settings

from quire.ledger.errors import NotEnoughBookiesError
from quire.ledger.placement.policy import Adherence, Cluster, PlacementConfig
from quire.ledger.placement.rack_aware import RackAwarePolicy
from tests.support.refusals import refuses
from tests.unit.ledger.placement.clusters import always, cluster_of, possible, racks_per_write_set, small_clusters

Drawn = tuple[Cluster, int, int, PlacementConfig, int]


def policy_of(cluster: Cluster, seed: int = 0, **config: Any) -> RackAwarePolicy:
    return RackAwarePolicy(PlacementConfig(**config), always(cluster), random.Random(seed))


@settings(deadline=None)
@given(small_clusters())
def test_a_new_ensemble_is_on_as_many_racks_as_any_could_be_up_to_what_is_wanted(drawn: Drawn) -> None:
    cluster, size, quorum, config, seed = drawn
    policy = RackAwarePolicy(config, always(cluster), random.Random(seed))
    wanted = min(quorum, config.min_racks_per_write_quorum)
    enforce = config.enforce_min_racks_per_write_quorum
    usable = [each for each in cluster.writable if not enforce or each in cluster.locations]

    def spread(ensemble: tuple[str, ...]) -> int:
        return min(wanted, racks_per_write_set(ensemble, quorum, cluster))

    exists = possible(usable, size, lambda ensemble: spread(ensemble) == wanted)
    if enforce and not exists:
        refuses(NotEnoughBookiesError, lambda: policy.new_ensemble(size, quorum, quorum))
        return
    ensemble = policy.new_ensemble(size, quorum, quorum)
    assert len(set(ensemble)) == size
    assert set(ensemble) <= set(usable)
    assert (policy.adherence(ensemble, quorum, quorum) is Adherence.MEETS_STRICT) == exists
    assert not possible(usable, size, lambda other: spread(other) > spread(ensemble))
    again = RackAwarePolicy(config, always(cluster), random.Random(seed)).new_ensemble(size, quorum, quorum)
    assert again == ensemble


@settings(deadline=None)
@given(small_clusters())
def test_a_replacement_is_neither_a_member_nor_excluded_and_keeps_racks_apart_if_any_could(drawn: Drawn):
    cluster, size, quorum, config, seed = drawn
    rng = random.Random(seed)
    ensemble = tuple(rng.sample(cluster.writable, size))
    failed = {index: ensemble[index] for index in rng.sample(range(size), rng.randint(1, size))}
    exclude = rng.sample(cluster.writable, rng.randint(0, 1))
    enforce = config.enforce_min_racks_per_write_quorum
    usable = [
        each
        for each in cluster.writable
        if each not in ensemble and each not in exclude and (not enforce or each in cluster.locations)
    ]
    touched = [start for start in range(size) if any((index - start) % size < quorum for index in failed)]
    wanted = min(quorum, config.min_racks_per_write_quorum)

    def good(newcomers: tuple[str, ...]) -> bool:
        changed = list(ensemble)
        for index, each in zip(sorted(failed), newcomers, strict=True):
            changed[index] = each
        racks = [cluster.locations.get(each, "/default-rack") for each in changed]
        return all(len({racks[(start + i) % size] for i in range(quorum)}) >= wanted for start in touched)

    policy = RackAwarePolicy(config, always(cluster), rng)
    exists = possible(usable, len(failed), good)
    if len(usable) < len(failed) or (enforce and not exists):
        refuses(NotEnoughBookiesError, lambda: policy.replace_bookie(size, quorum, quorum, ensemble, failed, exclude))
        return
    changed = policy.replace_bookie(size, quorum, quorum, ensemble, failed, exclude)
    assert [index for index in range(size) if changed[index] != ensemble[index]] == sorted(failed)
    newcomers = tuple(changed[index] for index in sorted(failed))
    assert len(set(changed)) == size
    assert set(newcomers) <= set(usable)
    assert good(newcomers) == exists


def test_every_bookie_of_equal_racks_gets_its_share() -> None:
    cluster = cluster_of(["/a", "/a", "/b", "/b", "/c", "/c"])
    policy = policy_of(cluster, seed=3)
    counts = Counter(each for _ in range(400) for each in policy.new_ensemble(3, 3, 2))
    assert all(160 < counts[each] < 240 for each in cluster.writable), counts


def test_each_bookie_is_in_another_rack_than_the_one_before_it() -> None:
    cluster = cluster_of(["/a"] * 4 + ["/b"] * 4 + ["/c"] * 4)
    for seed in range(40):
        ensemble = policy_of(cluster, seed).new_ensemble(6, 3, 2)
        racks = [cluster.locations[each] for each in ensemble]
        assert all(one != other for one, other in pairwise(racks)), racks


def test_a_bookie_with_more_space_is_drawn_more_often_within_the_racks() -> None:
    cluster = cluster_of(["/a", "/a", "/b"], weights={"b00:3181": 300, "b01:3181": 100, "b02:3181": 200})
    policy = policy_of(cluster, seed=8, disk_weighted=True)
    ensembles = [policy.new_ensemble(2, 2, 2) for _ in range(400)]
    assert all("b02:3181" in ensemble for ensemble in ensembles)
    assert 260 < sum("b00:3181" in ensemble for ensemble in ensembles) < 340


def test_a_large_cluster_and_a_wide_ensemble_are_placed_at_once() -> None:
    cluster = cluster_of([f"/r{number % 20}" for number in range(200)])
    policy = policy_of(cluster, min_racks_per_write_quorum=3)
    ensemble = policy.new_ensemble(40, 5, 3)
    assert policy.adherence(ensemble, 5, 3) is Adherence.MEETS_STRICT

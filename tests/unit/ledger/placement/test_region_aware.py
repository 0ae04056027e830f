from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.ledger.errors import NotEnoughBookiesError, PlacementPolicyError
from quire.ledger.placement.policy import Cluster, PlacementConfig
from quire.ledger.placement.region_aware import RegionAwarePolicy, region, shares
from tests.unit.ledger.placement.clusters import Health, always, cluster_of, possible

THREE = ["/eu/1", "/eu/1", "/eu/2", "/us/1", "/us/1", "/us/2", "/ap/1", "/ap/1", "/ap/2"]


def policy_of(cluster: Cluster, seed: int = 0, **config: Any) -> RegionAwarePolicy:
    return RegionAwarePolicy(PlacementConfig(**config), always(cluster), random.Random(seed))


def regions(ensemble: tuple[str, ...], cluster: Cluster) -> list[str]:
    return [region(each, cluster) for each in ensemble]


def test_every_region_has_its_share_and_every_write_set_spans_all_regions_it_can() -> None:
    cluster = cluster_of(THREE)
    for seed in range(30):
        ensemble = policy_of(cluster, seed).new_ensemble(6, 3, 2)
        names = regions(ensemble, cluster)
        assert Counter(names) == {"eu": 2, "us": 2, "ap": 2}
        assert all(len({names[(start + i) % 6] for i in range(3)}) == 3 for start in range(6)), names
        assert len(set(ensemble)) == 6


def test_a_region_without_bookies_has_no_share() -> None:
    assert shares({"a": 0, "b": 5}, 3) == {"a": 0, "b": 3}


def test_all_regions_get_the_one_more_in_turn_and_all_bookies_their_share() -> None:
    cluster = cluster_of(THREE)
    policy = policy_of(cluster, seed=2)
    ensembles = [policy.new_ensemble(4, 3, 2) for _ in range(300)]
    most = Counter(Counter(regions(ensemble, cluster)).most_common(1)[0][0] for ensemble in ensembles)
    assert all(70 < most[name] < 130 for name in ("eu", "us", "ap")), most


def test_bookies_without_a_location_are_a_region_of_their_own() -> None:
    cluster = cluster_of(["/eu/1", None, "/default-rack"])
    assert regions(cluster.writable, cluster) == ["eu", "default-region", "default-region"]


def test_enforced_racks_are_found_where_shares_of_regions_alone_would_miss_them() -> None:
    cluster = cluster_of(["/a/1", "/a/1", "/b/1", "/a/2"])
    policy = policy_of(cluster, enforce_min_racks_per_write_quorum=True)
    for _ in range(20):
        ensemble = policy.new_ensemble(4, 2, 1)
        racks = [cluster.locations[each] for each in ensemble]
        assert all(one != other for one, other in zip(racks, [*racks[1:], racks[0]], strict=True)), racks


def test_fewer_regions_named_than_durability_demands_is_refused() -> None:
    with pytest.raises(PlacementPolicyError, match="reppRegionsToWrite names 2"):
        policy_of(cluster_of(THREE), regions_to_write=("eu", "us"), min_regions_for_durability=3)


@settings(deadline=None)
@given(
    locations=st.lists(st.sampled_from(["/a/1", "/a/2", "/b/1", "/b/2", "/c/1", None]), min_size=1, max_size=6),
    durable=st.booleans(),
    enforce=st.booleans(),
    data=st.data(),
)
def test_an_ensemble_is_distinct_allowed_and_durable_exactly_if_one_can_be(locations, durable, enforce, data):
    cluster = cluster_of(locations)
    size = data.draw(st.integers(1, min(4, len(locations))))
    quorum = data.draw(st.integers(1, size))
    acks = data.draw(st.integers(1, quorum))
    config = PlacementConfig(
        policy="region-aware",
        regions_to_write=("a", "b") if durable else (),
        enforce_min_racks_per_write_quorum=enforce,
    )
    exclude = data.draw(st.lists(st.sampled_from(cluster.writable), max_size=1))
    policy = RegionAwarePolicy(config, always(cluster), random.Random(data.draw(st.integers(0, 99))))
    usable = [
        each
        for each in cluster.writable
        if each not in exclude
        and (not durable or region(each, cluster) in "ab")
        and (not enforce or each in cluster.locations)
    ]

    def good(ensemble: tuple[str, ...]) -> bool:
        names = regions(ensemble, cluster)
        sets = [[(start + i) % size for i in range(quorum)] for start in range(size)]
        survives = all(max(Counter(names[i] for i in each).values()) < acks for each in sets)
        apart = all(len({cluster.locations.get(ensemble[i]) for i in each}) >= min(2, quorum) for each in sets)
        return (survives or not durable) and (apart or not enforce)

    try:
        ensemble = policy.new_ensemble(size, quorum, acks, exclude)
    except PlacementPolicyError:
        assert durable
        assert acks < 2 or acks <= quorum - quorum // 2
        return
    except NotEnoughBookiesError:
        assert len(usable) < size or not possible(usable, size, good)
        return
    assert len(set(ensemble)) == size
    assert set(ensemble) <= set(usable)
    assert good(ensemble)


def test_the_own_region_is_read_first_with_one_of_another_in_the_third_place() -> None:
    cluster = cluster_of(["/eu/1", "/us/1", "/eu/2", "/us/2", "/eu/3"])
    ids = cluster.writable
    policy = policy_of(cluster, own_location="/eu/9")
    assert policy.read_order(ids, range(5), Health()) == [0, 2, 1, 4, 3]
    assert policy_of(cluster).read_order(ids, range(5), Health()) == [0, 1, 2, 3, 4]

"""Covers quire/ledger/placement/zone_aware.py."""

from __future__ import annotations

import random
from typing import Any

import pytest

from quire.ledger.errors import NotEnoughBookiesError, PlacementPolicyError
from quire.ledger.placement.policy import Adherence, Cluster, PlacementConfig
from quire.ledger.placement.zone_aware import ZoneAwarePolicy, zone_and_domain
from tests.unit.ledger.placement.clusters import always, cluster_of

THREE = [f"/z{zone}/ud{domain}" for zone in (1, 2, 3) for domain in (1, 2, 3)]


def policy_of(cluster: Cluster, seed: int = 0, **config: Any) -> ZoneAwarePolicy:
    return ZoneAwarePolicy(PlacementConfig(**config), always(cluster), random.Random(seed))


def labels_of(ensemble: tuple[str, ...], cluster: Cluster) -> list[str]:
    return [zone_and_domain(each, cluster) for each in ensemble]


def sets(labels: list[str], quorum: int) -> list[list[str]]:
    return [[labels[(start + i) % len(labels)] for i in range(quorum)] for start in range(len(labels))]


def test_every_write_set_spans_the_desired_zones() -> None:
    cluster = cluster_of(THREE)
    for seed in range(30):
        ensemble = policy_of(cluster, seed).new_ensemble(6, 3, 2)
        for each in sets(labels_of(ensemble, cluster), 3):
            assert len({label.split("/")[1] for label in each}) == 3
        assert policy_of(cluster).adherence(ensemble, 3, 2) is Adherence.MEETS_STRICT


def test_copies_in_one_zone_are_in_different_upgrade_domains() -> None:
    cluster = cluster_of(["/z1/a", "/z1/a", "/z1/b", "/z2/a", "/z2/a", "/z2/b"])
    for seed in range(30):
        ensemble = policy_of(cluster, seed).new_ensemble(3, 3, 2)
        labels = labels_of(ensemble, cluster)
        assert len({label.split("/")[1] for label in labels}) == 2
        assert len(set(labels)) == 3


def test_two_upgrade_domains_in_a_zone_suffice_if_there_are_no_more() -> None:
    cluster = cluster_of(["/z1/a", "/z1/a", "/z1/b", "/z2/a", "/z2/a", "/z2/b"])
    ensemble = policy_of(cluster).new_ensemble(6, 6, 2)
    assert policy_of(cluster).adherence(ensemble, 6, 2) is Adherence.MEETS_SOFT
    with pytest.raises(NotEnoughBookiesError, match="two upgrade domains"):
        policy_of(cluster_of(["/z1/a"] * 3 + ["/z2/a"] * 3)).new_ensemble(6, 6, 2)


def test_fewer_zones_than_the_minimum_are_refused() -> None:
    cluster = cluster_of(["/z1/a", "/z1/b", "/z1/c"])
    with pytest.raises(NotEnoughBookiesError, match="spans 2 zones as minNumZonesPerWriteQuorum"):
        policy_of(cluster).new_ensemble(3, 3, 2)
    assert policy_of(cluster).adherence(cluster.writable, 3, 2) is Adherence.FAIL
    assert len(policy_of(cluster, strict_zones=False).new_ensemble(3, 3, 2)) == 3


def test_bookies_without_a_zone_and_a_domain_are_not_used() -> None:
    cluster = cluster_of([None, "/z1", "/z1/a/b", "/z1/a", "/z2/a", "/z3/a"])
    for seed in range(20):
        assert set(policy_of(cluster, seed).new_ensemble(3, 3, 2)) == set(cluster.writable[3:])
    with pytest.raises(NotEnoughBookiesError, match="an ensemble of 6 needs 6 bookies, 3 are available"):
        policy_of(cluster).new_ensemble(6, 3, 2)
    assert policy_of(cluster).adherence((cluster.writable[0], *cluster.writable[4:]), 3, 2) is Adherence.FAIL


@pytest.mark.parametrize(
    ("ensemble", "quorum", "text"), [(5, 3, "E=5 is not a multiple of Qw=3"), (4, 2, "Qw=2 is not larger than")]
)
def test_sizes_with_which_a_lost_zone_could_not_be_replaced_are_refused(ensemble: int, quorum: int, text: str) -> None:
    cluster = cluster_of(THREE)
    with pytest.raises(PlacementPolicyError, match=text):
        policy_of(cluster).new_ensemble(ensemble, quorum, 2)
    assert policy_of(cluster).adherence(cluster.writable[:ensemble], quorum, 2) is Adherence.FAIL
    assert len(policy_of(cluster, strict_zones=False).new_ensemble(ensemble, quorum, 2)) == ensemble


def test_more_zones_required_than_desired_are_refused() -> None:
    with pytest.raises(PlacementPolicyError, match="minNumZonesPerWriteQuorum is 4, more than"):
        policy_of(cluster_of(THREE), min_zones_per_write_quorum=4)


def test_a_replacement_keeps_the_zones_and_falls_back_to_the_minimum() -> None:
    cluster = cluster_of(["/z1/a", "/z2/a", "/z3/a", "/z3/b", "/z1/b", "/z2/a"])
    ids = cluster.writable
    for seed in range(20):
        policy = policy_of(cluster, seed)
        assert policy.replace_bookie(3, 3, 2, ids[:3], {2: ids[2]}) == (ids[0], ids[1], ids[3])
        assert policy.replace_bookie(3, 3, 2, ids[:3], {0: ids[0]}) == (ids[4], ids[1], ids[2])
        # Zone 3 is lost. The other one of z2 is in the same upgrade domain.
        assert policy.replace_bookie(3, 3, 2, ids[:3], {2: ids[2]}, exclude=[ids[3]]) == (ids[0], ids[1], ids[4])
        with pytest.raises(NotEnoughBookiesError):
            policy.replace_bookie(3, 3, 2, ids[:3], {2: ids[2]}, exclude=[ids[3], ids[4]])


def test_an_ensemble_with_the_minimum_of_zones_is_rated_soft() -> None:
    cluster = cluster_of(["/z1/a", "/z2/a", "/z1/b"])
    assert policy_of(cluster).adherence(cluster.writable, 3, 2) is Adherence.MEETS_SOFT
    desired = policy_of(cluster, desired_zones_per_write_quorum=2)
    assert desired.adherence(cluster.writable, 3, 2) is Adherence.MEETS_STRICT

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from quire.ledger.errors import PlacementPolicyError
from quire.ledger.placement import PlacementConfig, load_policy, make_placement, random_placement
from quire.ledger.placement.rack_aware import RackAwarePolicy
from quire.ledger.placement.random_policy import RandomPolicy
from quire.ledger.placement.region_aware import RegionAwarePolicy
from tests.unit.ledger.placement.clusters import Health, always, cluster_of

OUTSIDE = '''
from collections.abc import Collection, Mapping, Sequence

from quire.ledger.errors import NotEnoughBookiesError
from quire.ledger.placement import Adherence


class Alphabetical:
    """The first bookies by name; reads the last of the write set first."""

    def __init__(self, config, cluster, rng):
        self._cluster = cluster

    def new_ensemble(self, ensemble_size, write_quorum, ack_quorum, exclude=(), custom_metadata=()):
        wanted = dict(custom_metadata).get("prefix", b"").decode()
        found = [each for each in self._cluster().writable if each not in exclude and each.startswith(wanted)]
        if len(found) < ensemble_size:
            raise NotEnoughBookiesError("not enough letters")
        return tuple(found[:ensemble_size])

    def replace_bookie(self, ensemble_size, write_quorum, ack_quorum, ensemble, failed, exclude=(), custom_metadata=()):
        others = iter([each for each in self._cluster().writable if each not in ensemble and each not in exclude])
        return tuple(next(others) if index in failed else each for index, each in enumerate(ensemble))

    def read_order(self, ensemble, write_set, health):
        return list(write_set)[::-1]

    def adherence(self, ensemble, write_quorum, ack_quorum):
        return Adherence.MEETS_SOFT


class NotMade(Alphabetical):
    def __init__(self, config, cluster, rng):
        raise ValueError("no alphabet")


class NoPolicy:
    def new_ensemble(self):
        pass


def function():
    pass
'''


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Create a foreign package with a policy; return its name."""
    package = tmp_path / "stranger_policies"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "letters.py").write_text(OUTSIDE)
    (package / "broken.py").write_text("import a_module_that_nobody_has")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("stranger_policies", "stranger_policies.letters", "stranger_policies.broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "stranger_policies"


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("", RackAwarePolicy),
        ("random", RandomPolicy),
        ("rack-aware", RackAwarePolicy),
        (" region-aware ", RegionAwarePolicy),
        ("org.apache.bookkeeper.client.DefaultEnsemblePlacementPolicy", RandomPolicy),
        ("org.apache.bookkeeper.client.RackawareEnsemblePlacementPolicy", RackAwarePolicy),
        ("org.apache.bookkeeper.client.RegionAwareEnsemblePlacementPolicy", RegionAwarePolicy),
    ],
)
def test_our_policies_have_our_names_and_the_originals(name: str, policy: type) -> None:
    assert load_policy(name) is policy


def test_a_policy_of_an_outside_package_is_asked(outside: str) -> None:
    cluster = cluster_of([None] * 5, quarantined=frozenset(["b01:3181"]))
    config = PlacementConfig(policy=f"{outside}.letters:Alphabetical")
    placement = make_placement(config, always(cluster), random.Random(0))
    ids = cluster.writable
    assert placement.new_ensemble(3, 2, 2) == (ids[0], ids[2], ids[3])
    assert placement.new_ensemble(1, 1, 1, custom_metadata=[("prefix", b"b04")]) == (ids[4],)
    assert placement.replace_bookie(2, 2, 2, ids[2:4], {1: ids[3]}) == (ids[2], ids[0])
    assert placement.read_order(ids, [0, 1], Health()) == [1, 0]
    assert placement.adherence(ids, 2, 2).name == "MEETS_SOFT"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "stranger_policies.letters.Alphabetical",
            "is unknown: use one of random, rack-aware, region-aware, zone-aware, org.apache",
        ),
        ("no_such_package:Policy", "cannot be loaded: ModuleNotFoundError"),
        ("stranger_policies.broken:Policy", "a_module_that_nobody_has"),
        ("stranger_policies.letters:Nobody", "cannot be loaded: AttributeError"),
        ("stranger_policies.letters:", "cannot be loaded"),
        (":Policy", "cannot be loaded"),
        ("stranger_policies.letters:NoPolicy", "no replace_bookie, read_order, adherence"),
        ("stranger_policies.letters:function", "is no placement policy"),
        ("stranger_policies.letters:NotMade", "cannot be created: ValueError"),
    ],
)
def test_a_name_that_is_no_policy_is_refused_with_the_reason(outside: str, name: str, text: str) -> None:
    with pytest.raises(PlacementPolicyError, match=text):
        make_placement(PlacementConfig(policy=name), always(cluster_of([])), random.Random(0))


def test_a_configuration_that_a_policy_refuses_is_refused_in_its_words() -> None:
    config = PlacementConfig(policy="region-aware", regions_to_write=("eu",))
    with pytest.raises(PlacementPolicyError, match="reppRegionsToWrite names 1"):
        make_placement(config, always(cluster_of([])), random.Random(0))


def test_bookies_that_somebody_else_knows_are_drawn_at_random() -> None:
    placement = random_placement(lambda: ["b:1", "a:1"], random.Random(0))
    assert {placement.new_ensemble(2, 2, 2) for _ in range(20)} == {("a:1", "b:1"), ("b:1", "a:1")}

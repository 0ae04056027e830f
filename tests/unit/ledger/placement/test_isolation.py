"""Ledgers that may only be on bookies of some groups of the rack map."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from quire.ledger.errors import NotEnoughBookiesError
from quire.ledger.placement import Cluster, PlacementConfig, make_placement
from quire.ledger.placement.isolation import KEY, POLICY_CLASS, BookieGroups, encode_groups, groups_of, left_out
from quire.ledger.placement.topology import decode_rack_map

GROUPS = {"a": frozenset(("1", "2")), "b": frozenset("3"), "c": frozenset(("4", "2"))}


@pytest.mark.parametrize(
    ("primary", "secondary", "writable", "size", "out"),
    [
        ("a", "", "12345", 2, "34"),
        ("a,b", "", "12345", 2, "4"),
        ("c", "", "12345", 2, "13"),
        ("a", "b", "12345", 2, "34"),
        ("a", "b", "12345", 3, "4"),
        ("a", "b", "1345", 2, "4"),
        ("a", "", "1345", 2, "34"),
        ("x", "", "12345", 1, "1234"),
        ("x", "a", "12345", 1, "34"),
    ],
)
def test_bookies_of_other_groups_are_left_out(primary: str, secondary: str, writable: str, size: int, out: str) -> None:
    wanted = groups_of([encode_groups(primary, secondary)])
    assert wanted is not None
    assert left_out(wanted, GROUPS, writable, size) == set(out)


def test_the_entry_is_the_originals() -> None:
    """Source: EnsemblePlacementPolicyConfig.encode of Pulsar 4.2."""
    key, value = encode_groups("a,b", "c")
    assert key == KEY == "EnsemblePlacementPolicyConfig"
    assert json.loads(value) == {
        "policyClass": "org.apache.pulsar.bookie.rackawareness.IsolatedBookieEnsemblePlacementPolicy",
        "properties": {"isolationBookieGroups": "a,b", "secondaryIsolationBookieGroups": "c"},
    }
    assert groups_of([("other", b"x"), (key, value)]) == BookieGroups(frozenset("ab"), frozenset("c"))


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{}", b'{"policyClass":"other"}', json.dumps({"policyClass": POLICY_CLASS}).encode()]
)
def test_an_entry_that_cannot_be_read_and_one_of_another_policy_name_no_groups(value: bytes) -> None:
    assert groups_of([(KEY, value)]) is None
    assert groups_of([]) is None


def test_a_rack_map_has_the_bookies_of_each_group() -> None:
    found = decode_rack_map(b'{"a": {"1:1": {"rack": "r"}, "2:1": {}}, "b": {}}')
    assert found.groups == {"a": {"1:1", "2:1"}, "b": set()}


@pytest.mark.parametrize("policy", ["random", "rack-aware", "region-aware"])
def test_every_policy_keeps_new_ensembles_and_replacements_to_the_groups(policy: str) -> None:
    cluster = Cluster(writable=tuple("12345"), groups=GROUPS)
    placement = make_placement(PlacementConfig(policy=policy), lambda: cluster, random.Random(1))
    custom: list[Any] = [encode_groups("a", "")]
    for _ in range(20):
        assert set(placement.new_ensemble(2, 2, 2, custom_metadata=custom)) <= set("125")
        [changed] = set(placement.replace_bookie(2, 2, 2, ("1", "2"), {0: "1"}, custom_metadata=custom)) - {"2"}
        assert changed == "5"
    with pytest.raises(NotEnoughBookiesError, match=r"groups a .*bookieAffinity"):
        placement.new_ensemble(4, 2, 2, custom_metadata=custom)
    assert len(placement.new_ensemble(4, 2, 2)) == 4

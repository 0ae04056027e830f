"""Bundles: slices of the ring."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.ownership.bundles import (
    FLOW_EQUALLY,
    RANGE_EQUALLY,
    RING_END,
    SPECIFIED_POSITIONS,
    TOPIC_COUNT_EQUALLY,
    Bundle,
    Bundles,
    even,
    parse_range,
    split_points,
)
from broker.ownership.errors import BundleSplitError, NoSuchBundleError
from quire.wire.pulsar.names import NamespaceName, TopicName
from tests.support.refusals import refuses

NAMESPACE = NamespaceName("public", "default")
PLACES = st.integers(0, RING_END)
GOLDEN = Path(__file__).parents[3] / "golden" / "pulsar" / "zk-running.json"


@st.composite
def some_bundles(draw: st.DrawFn) -> Bundles:
    inner = draw(st.sets(st.integers(1, RING_END - 1), max_size=20))
    return Bundles(NAMESPACE, [0, *sorted(inner), RING_END])


@given(some_bundles(), PLACES)
def test_every_place_is_in_exactly_the_bundle_that_is_found(bundles: Bundles, place: int) -> None:
    assert [bundle for bundle in bundles.all() if place in bundle] == [bundles.at(place)]


@given(some_bundles(), st.data())
def test_a_split_divides_one_bundle_and_leaves_the_others(bundles: Bundles, data: st.DataObject) -> None:
    bundle = data.draw(st.sampled_from([each for each in bundles.all() if each.high - each.low > 1]))
    cuts = data.draw(st.sets(st.integers(bundle.low + 1, bundle.high - 1), min_size=1, max_size=3))
    after = bundles.split(bundle, sorted(cuts))
    assert len(after) == len(bundles) + len(cuts)
    assert [each for each in after.all() if each not in bundles] == [
        each for each in after.all() if bundle.low <= each.low < bundle.high
    ]
    for place in (bundle.low, bundle.high - 1, *cuts):
        assert place in bundle
        assert bundle.low <= after.at(place).low < after.at(place).high <= bundle.high


@given(st.integers(1, 1000))
def test_even_bundles_are_as_many_as_asked_and_of_one_size_but_for_the_last(count: int) -> None:
    bundles = even(NAMESPACE, count)
    sizes = [each.high - each.low for each in bundles.all()]
    assert len(sizes) == count
    assert set(sizes[:-1]) <= {(RING_END + 1) // count}


def test_the_last_boundary_is_inside_the_last_bundle_and_no_other_upper_one_is() -> None:
    first, last = even(NAMESPACE, 2).all()
    assert RING_END in last
    assert first.high not in first
    assert first.high in last


def test_names_and_paths_are_those_of_the_original() -> None:
    bundle = even(NAMESPACE, 4).all()[3]
    assert bundle.path == "/namespace/public/default/0xc0000000_0xffffffff"
    assert str(bundle) == "public/default/0xc0000000_0xffffffff"
    assert parse_range(bundle.range) == (bundle.low, bundle.high)


@pytest.mark.parametrize(("namespace", "count"), [("default", 16), ("dedup", 4)])
def test_topics_are_in_the_bundles_that_the_original_put_them_into(namespace: str, count: int) -> None:
    """In the golden tree, the bundles of the topics that were used have an owner."""
    nodes = json.loads(GOLDEN.read_text())

    def names_in(folder: str) -> set[str]:
        found = {path.removeprefix(f"/pulsar{folder}/") for path in nodes if path.startswith(f"/pulsar{folder}/")}
        return {name for name in found if "/" not in name}

    topics = names_in(f"/managed-ledgers/public/{namespace}/persistent")
    bundles = even(NamespaceName("public", namespace), count)
    places = {bundles.find(TopicName.parse(f"public/{namespace}/{topic}")).range for topic in topics}
    assert places == names_in(f"/namespace/public/{namespace}")


def test_a_bundle_is_found_by_its_range_or_not_at_all() -> None:
    bundles = even(NAMESPACE, 4)
    assert bundles.bundle("0x40000000_0x80000000") == bundles.all()[1]
    assert bundles.bundle("0xC0000000_0xFFFFFFFF") == bundles.all()[3]
    refuses(NoSuchBundleError, lambda: bundles.bundle("0x00000000_0x80000000"))
    assert Bundle(NAMESPACE, 0, 0x80000000) not in bundles
    assert Bundle(NamespaceName("public", "other"), 0, 0x40000000) not in bundles


@pytest.mark.parametrize("boundaries", [[], [0], [1, RING_END], [0, 5], [0, 7, 7, RING_END], [0, 9, 3, RING_END]])
def test_boundaries_that_leave_a_gap_or_do_not_grow_are_refused(boundaries: list[int]) -> None:
    refuses(ValueError, lambda: Bundles(NAMESPACE, boundaries), "boundaries")


def test_a_cut_outside_of_the_bundle_is_refused() -> None:
    bundles = even(NAMESPACE, 4)
    for cuts in ([], [0], [0x40000000], [0x50000000]):
        with pytest.raises(BundleSplitError):
            bundles.split(bundles.all()[0], cuts)
    refuses(NoSuchBundleError, lambda: bundles.split(Bundle(NAMESPACE, 0, 5), [3]))


def test_each_algorithm_cuts_where_the_original_would() -> None:
    bundle = Bundle(NAMESPACE, 0, 1000)
    weights = [(100, 1.0), (200, 1.0), (300, 1.0), (900, 10.0)]
    assert split_points(bundle, RANGE_EQUALLY) == [500]
    assert split_points(bundle, SPECIFIED_POSITIONS, positions=[700, 20, 5000]) == [20, 700]
    assert split_points(bundle, TOPIC_COUNT_EQUALLY, weights=weights) == [250]
    assert split_points(bundle, FLOW_EQUALLY, weights=weights) == [600]
    for algorithm, given_weights in ((TOPIC_COUNT_EQUALLY, weights[:1]), (SPECIFIED_POSITIONS, ()), ("other", ())):
        with pytest.raises(BundleSplitError):
            split_points(bundle, algorithm, weights=given_weights)


@given(st.sets(st.integers(0, 999), min_size=2, max_size=30))
def test_a_split_by_topics_leaves_topics_on_both_sides(places: set[int]) -> None:
    bundle = Bundle(NAMESPACE, 0, 1000)
    [cut] = split_points(bundle, TOPIC_COUNT_EQUALLY, weights=[(place, 0.0) for place in places])
    below = sum(place < cut for place in places)
    assert abs(len(places) - 2 * below) <= 1

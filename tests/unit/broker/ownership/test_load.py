"""Assignment of bundles by load."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.ownership.affinity.quotas import Expected
from broker.ownership.config import OwnershipOptions
from broker.ownership.load import Move, choose, to_shed, to_split
from broker.ownership.values import BrokerReport, BundleLoad, LocalBroker

OPTIONS = OwnershipOptions()


def report(name: str, **rates: float) -> BrokerReport:
    broker = LocalBroker(id=name, broker_url=f"pulsar://{name}:1", web_url=f"http://{name}:2")
    return BrokerReport(broker=broker, bundles={each: BundleLoad(messages_in=rate) for each, rate in rates.items()})


def test_the_least_loaded_broker_is_chosen_then_the_one_with_fewest_bundles_then_by_id() -> None:
    assert choose({}, {}) is None
    assert choose({"b": report("b"), "a": report("a")}, {}) == "a"
    assert choose({"a": report("a", x=0), "b": report("b")}, {}) == "b"
    assert choose({"a": report("a", x=100), "b": report("b", y=50, z=40)}, {}) == "b"


def test_bundles_given_since_the_report_count() -> None:
    brokers = {name: report(name) for name in "abc"}
    given_to: dict[str, list[str]] = {}
    for number in range(30):
        chosen = choose(brokers, given_to)
        assert chosen is not None
        given_to.setdefault(chosen, []).append(str(number))
    assert {name: len(bundles) for name, bundles in given_to.items()} == {"a": 10, "b": 10, "c": 10}
    busy = {"a": report("a", x=100), "b": report("b", y=150)}
    assert choose(busy, {}) == "a"
    assert choose(busy, {"a": ["y"]}) == "b", "as much as the average one"


def test_a_bundle_counts_with_its_quota_until_it_has_more() -> None:
    idle = {"a": report("a"), "b": report("b", x=0)}
    quotas = Expected({"big": 1000.0})
    assert choose(idle, {}, quotas) == "a"
    assert choose(idle, {"a": ["big"]}, quotas) == "b", "though it has more bundles"
    assert choose({"a": report("a", big=1), "b": report("b", y=500)}, {}, quotas) == "b", "it is reported, and idle yet"
    assert choose({"a": report("a", big=1001), "b": report("b", y=1000.5)}, {}, quotas) == "b", "it has more"
    busy = {"a": report("a", x=100), "b": report("b", y=150)}
    assert choose(busy, {"a": ["small"]}, Expected({"small": 1.0})) == "a", "and not as much as the average one"
    assert choose(busy, {"a": ["z"]}, Expected({}, default=20.0)) == "a", "the default is that of others"
    assert choose(busy, {"a": ["z"]}, Expected({}, default=60.0)) == "b"


def test_one_that_has_far_more_sheds_to_the_one_that_has_least() -> None:
    brokers = {"a": report("a", x=100, y=900, z=500), "b": report("b", v=10), "c": report("c", w=300)}
    moves = to_shed(brokers, lambda _: True, OPTIONS)
    assert moves[0] == Move(bundle="y", source="a", destination="b")


def test_what_was_moved_lately_stays_and_so_does_the_only_bundle() -> None:
    alone = {"a": report("a", x=5000), "b": report("b")}
    assert to_shed(alone, lambda _: True, OPTIONS) == []
    two = {"a": report("a", x=500, y=400), "b": report("b")}
    assert to_shed(two, lambda bundle: bundle != "x", OPTIONS) == [Move(bundle="y", source="a", destination="b")]
    assert to_shed(two, lambda _: False, OPTIONS) == []


def test_a_move_that_would_only_swap_the_two_is_not_made() -> None:
    shares = report("a", x=100.0, y=200.0 + 1e-6, z=300.0), report("b", w=400.0)
    assert to_shed({"a": shares[0], "b": shares[1]}, lambda bundle: bundle != "x", OPTIONS) == []


@given(st.lists(st.lists(st.integers(0, 1000), max_size=6), min_size=1, max_size=5))
def test_shedding_never_makes_the_worst_worse_and_moves_no_bundle_twice(rates: list[list[int]]) -> None:
    brokers = {
        f"b{index}": report(f"b{index}", **{f"x{index}{number}": rate for number, rate in enumerate(each)})
        for index, each in enumerate(rates)
    }
    moves = to_shed(brokers, lambda _: True, OPTIONS)
    after = {name: each.message_rate for name, each in brokers.items()}
    for move in moves:
        rate = brokers[move.source].bundles[move.bundle].message_rate
        after[move.source] -= rate
        after[move.destination] += rate
    assert max(after.values()) <= max(each.message_rate for each in brokers.values())
    assert len({move.bundle for move in moves}) == len(moves)


def test_a_bundle_above_any_of_the_limits_is_split_while_the_namespace_may_have_more() -> None:
    small = BundleLoad(topics=2)
    large = [
        small._replace(topics=1001),
        small._replace(producers=600, consumers=401),
        small._replace(messages_in=20_000, messages_out=10_001),
        small._replace(bytes_out=101 * (1 << 20)),
    ]
    broker = report("a").broker
    bundles = {f"t/n/{index}": load for index, load in enumerate([small, *large])}
    reports = {"a": BrokerReport(broker=broker, bundles=bundles)}
    assert to_split(reports, {"t/n": 5}, OPTIONS) == [(f"t/n/{index}", "a") for index in (1, 2, 3, 4)]
    assert to_split(reports, {"t/n": 127}, OPTIONS) == [("t/n/1", "a")]
    assert to_split(reports, {"t/n": 128}, OPTIONS) == []


def test_one_busy_topic_alone_is_not_split_from_itself() -> None:
    load = BundleLoad(topics=1, messages_in=1e6)
    reports = {"a": BrokerReport(broker=report("a").broker, bundles={"t/n/x": load})}
    assert to_split(reports, {"t/n": 4}, OPTIONS) == []

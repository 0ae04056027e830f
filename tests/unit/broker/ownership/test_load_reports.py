"""Load reports of a broker: their content and their times."""

from __future__ import annotations

from typing import Any

import trio

from broker.ownership.bundles import Bundle, even
from broker.ownership.config import OwnershipOptions
from broker.ownership.load_reports import Meter, should_report
from broker.ownership.values import BundleLoad
from broker.slices import run_through
from quire.wire.pulsar.names import NamespaceName, TopicName
from tests.unit.broker.ownership.cluster import counters

NAMESPACE = NamespaceName("public", "default")
BUNDLES = even(NAMESPACE, 2)
TOPIC = TopicName.parse("orders")
OPTIONS = OwnershipOptions()
KEY = str(BUNDLES.find(TOPIC))


def bundle_of(name: TopicName) -> Bundle:
    return BUNDLES.find(name)


def measured(meter: Meter, *given: Any) -> dict[str, BundleLoad]:
    async def main() -> dict[str, BundleLoad]:
        return await run_through(meter.measure(*given))

    return trio.run(main)


def test_rates_are_what_was_added_since_the_last_measurement() -> None:
    meter = Meter(0.0)
    counts = counters(TOPIC, messages_in=100, bytes_in=1000, messages_out=50, producers=1, consumers=2)
    load = measured(meter, 10.0, [counts], bundle_of, BUNDLES.all())[KEY]
    assert load == BundleLoad(
        topics=1, producers=1, consumers=2, messages_in=10.0, messages_out=5.0, bytes_in=100.0, bytes_out=50.0
    )
    counts = counters(TOPIC, messages_in=120, bytes_in=1200, messages_out=50)
    assert measured(meter, 20.0, [counts], bundle_of, BUNDLES.all())[KEY].messages_in == 2.0
    assert meter.topic_rates == {TOPIC: 2.0}


def test_a_topic_that_was_loaded_anew_counts_from_zero() -> None:
    meter = Meter(0.0)
    measured(meter, 10.0, [counters(TOPIC, messages_in=100)], bundle_of, BUNDLES.all())
    load = measured(meter, 20.0, [counters(TOPIC, messages_in=30)], bundle_of, BUNDLES.all())[KEY]
    assert load.messages_in == 3.0


def test_only_owned_bundles_are_told_and_every_one_of_them() -> None:
    owned = [bundle for bundle in BUNDLES.all() if str(bundle) != KEY]
    loads = measured(Meter(0.0), 10.0, [counters(TOPIC, messages_in=100)], bundle_of, owned)
    assert loads == {str(owned[0]): BundleLoad()}


def test_what_has_hardly_changed_is_told_after_a_long_time_only() -> None:
    before = {"x": BundleLoad(topics=1, messages_in=1000.0)}

    def after(**changes: Any) -> dict[str, BundleLoad]:
        return {"x": before["x"]._replace(**changes)}

    assert not should_report(before, before, 10_000.0, OPTIONS)
    assert not should_report(before, after(messages_in=1050.0), 100.0, OPTIONS)
    assert should_report(before, after(messages_in=1050.0), 900.0, OPTIONS)
    assert should_report(before, after(messages_in=1200.0), 1.0, OPTIONS)
    assert should_report(before, after(messages_in=800.0), 1.0, OPTIONS)
    assert should_report(before, after(topics=2), 1.0, OPTIONS)
    assert should_report(before, after(bytes_out=20_000.0), 1.0, OPTIONS)
    assert should_report(before, {**before, "y": BundleLoad()}, 1.0, OPTIONS)
    assert should_report(before, {}, 1.0, OPTIONS)
    quiet = {"x": BundleLoad(messages_in=1.0)}
    assert not should_report(quiet, {"x": BundleLoad(messages_in=9.0)}, 1.0, OPTIONS), "noise"

"""Metrics of bundles and of their balance, under Pulsar's names. They are read at each scrape from what the load report
has measured, so that nothing is counted with a message.

Source: Pulsar's reference of metrics (bundle metrics, load balancing metrics), ModularLoadManagerImpl.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Final, Protocol

from broker.ownership.values import BundleLoad
from quire.service.metrics import Metrics, Samples

BUNDLES_MAX: Final = 1000
"""Bundles with series of their own, the first by name; the others are summed as REST."""
REST: Final = "quire_rest"
_OF_BUNDLES: Final = (
    ("pulsar_bundle_msg_rate_in", "Messages published per second", "messages_in"),
    ("pulsar_bundle_msg_rate_out", "Messages delivered per second", "messages_out"),
    ("pulsar_bundle_msg_throughput_in", "Bytes published per second", "bytes_in"),
    (
        "pulsar_bundle_msg_throughput_out",
        "Bytes delivered per second, by the mean size of the messages published",
        "bytes_out",
    ),
    ("pulsar_bundle_topics_count", "Topics loaded", "topics"),
    ("pulsar_bundle_producer_count", "Producers", "producers"),
    ("pulsar_bundle_consumer_count", "Consumers", "consumers"),
)


class Balance(Protocol):
    """Counts of the balancer."""

    @property
    def bundles_moved(self) -> int: ...

    @property
    def brokers_relieved(self) -> int: ...

    @property
    def bundles_split(self) -> int: ...


def register_bundles(
    metrics: Metrics, cluster: str, broker: str, loads: Callable[[], Mapping[str, BundleLoad]], balance: Balance
) -> None:
    """Add the families.

    Args:
        cluster, broker: labels.
        loads: load of each bundle that this broker owns, as last measured.
        balance: what this broker has done as the leader.
    """

    def of_bundles(field: str) -> Callable[[], Samples]:
        read = attrgetter(field)

        def samples() -> Samples:
            rest, found = 0.0, loads()
            for place, bundle in enumerate(sorted(found)):
                if place < BUNDLES_MAX:
                    yield (cluster, broker, bundle), read(found[bundle])
                else:
                    rest += read(found[bundle])
            if len(found) > BUNDLES_MAX:
                yield (cluster, broker, REST), rest

        return samples

    for name, text, field in _OF_BUNDLES:
        doc = f"{text}, by bundle, in the time of the last measurement (loadBalancerReportUpdateMinIntervalMillis)"
        metrics.family("gauge", name, doc, ("cluster", "broker", "bundle"), of_bundles(field))
    for name, text, kind, value in (
        (
            "pulsar_lb_unload_bundle_total",
            "Bundles that this broker, as the leader, has moved away from their brokers",
            "bundleUnloading",
            attrgetter("bundles_moved"),
        ),
        (
            "pulsar_lb_unload_broker_total",
            "Brokers that these bundles were moved away from, counted in each round",
            "bundleUnloading",
            attrgetter("brokers_relieved"),
        ),
        (
            "pulsar_lb_bundles_split_total",
            "Bundles that this broker, as the leader, has had split",
            "bundlesSplit",
            attrgetter("bundles_split"),
        ),
    ):

        def count(value: Callable[[Balance], int] = value, kind: str = kind) -> Samples:
            yield (cluster, broker, kind), value(balance)

        metrics.family("counter", name, text, ("cluster", "broker", "metric"), count)

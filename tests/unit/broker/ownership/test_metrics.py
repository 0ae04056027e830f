"""Metrics of bundles and their balance (`broker.ownership.metrics`)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.ownership import metrics as module
from broker.ownership.balance import Balancer
from broker.ownership.config import OwnershipOptions
from broker.ownership.load import Move
from broker.ownership.metrics import register_bundles
from broker.ownership.values import BundleLoad
from quire.service.metrics import Metrics

LOADS = {
    f"a/b/0x{low}0000000_0x{high}0000000": BundleLoad(number, 2, 3, 1.5, 2.5, 100.0, 200.0)
    for number, (low, high) in enumerate((("0", "4"), ("4", "8"), ("8", "c")), 1)
}
BALANCE: Any = SimpleNamespace(bundles_moved=3, brokers_relieved=2, bundles_split=1)


def text(loads: dict[str, BundleLoad]) -> str:
    metrics = Metrics()
    register_bundles(metrics, "c", "b:8080", lambda: loads, BALANCE)
    return metrics.exposition().decode()


def test_each_bundle_has_its_load_as_last_measured() -> None:
    found = text(LOADS)
    labels = 'broker="b:8080",bundle="a/b/0x40000000_0x80000000",cluster="c"'
    for name, value in (
        ("msg_rate_in", 1.5),
        ("msg_rate_out", 2.5),
        ("msg_throughput_in", 100.0),
        ("msg_throughput_out", 200.0),
        ("topics_count", 2.0),
        ("producer_count", 2.0),
        ("consumer_count", 3.0),
    ):
        assert f"pulsar_bundle_{name}{{{labels}}} {value}\n" in found
    for name, kind, value in (
        ("unload_bundle", "bundleUnloading", 3.0),
        ("unload_broker", "bundleUnloading", 2.0),
        ("bundles_split", "bundlesSplit", 1.0),
    ):
        assert f'pulsar_lb_{name}_total{{broker="b:8080",cluster="c",metric="{kind}"}} {value}\n' in found


def test_too_many_bundles_are_summed_as_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUNDLES_MAX", 1)
    found = text(LOADS)
    topics = [line for line in found.splitlines() if line.startswith("pulsar_bundle_topics_count{")]
    assert topics == [
        'pulsar_bundle_topics_count{broker="b:8080",bundle="a/b/0x00000000_0x40000000",cluster="c"} 1.0',
        'pulsar_bundle_topics_count{broker="b:8080",bundle="quire_rest",cluster="c"} 5.0',
    ]


async def test_a_move_counts_if_the_broker_has_handed_the_bundle_over() -> None:
    refused = "a/b/0x00000000_0x40000000"

    class Peers:
        async def unload(self, broker: Any, bundle: Any, destination: str) -> bool:
            return str(bundle) != refused

        async def split(self, broker: Any, bundle: Any, algorithm: str) -> bool:
            return str(bundle) != refused

    reports = {name: SimpleNamespace(broker=name, bundles={}) for name in ("x", "y")}
    ownership: Any = SimpleNamespace(
        brokers=SimpleNamespace(reports=reports, me=SimpleNamespace(id="me")),
        options=OwnershipOptions(),
        peers=Peers(),
    )
    balancer = Balancer(ownership)
    sources = zip(LOADS, ("x", "x", "x"), strict=True)
    await balancer._move_all([Move(bundle=each, source=source, destination="z") for each, source in sources])
    assert (balancer.bundles_moved, balancer.brokers_relieved) == (2, 1)
    for each in LOADS:
        await balancer._split(each, "x")
    assert balancer.bundles_split == 2

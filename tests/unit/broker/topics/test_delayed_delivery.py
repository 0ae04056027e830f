from __future__ import annotations

from typing import Any

import pytest

from broker.config import BrokerOptions
from broker.topics.delayed_delivery import DelayedDelivery, effective_delayed, of_broker

DEFAULT = of_broker(BrokerOptions())


@pytest.mark.parametrize(
    ("namespace", "topic", "expected"),
    [
        (None, None, DEFAULT),
        ({}, {}, DEFAULT),
        ({"delayed_delivery_policies": None}, {"delayedDeliveryEnabled": None}, DEFAULT),
        (
            {"delayed_delivery_policies": {"tickTime": 5, "active": False}},
            None,
            DelayedDelivery(False, 5, 0),
        ),
        (
            {"delayed_delivery_policies": {"tickTime": 5, "active": False, "maxDeliveryDelayInMillis": 9}},
            {"delayedDeliveryEnabled": True},
            DelayedDelivery(True, 5, 9),
        ),
        (None, {"delayedDeliveryTickTimeMillis": 0}, DelayedDelivery(True, 1, 0)),
        (None, {"delayedDeliveryMaxDelayInMillis": 7}, DelayedDelivery(True, 1000, 7)),
        ({"delayed_delivery_policies": {"tickTime": -5}}, {"delayedDeliveryEnabled": "no"}, DEFAULT),
        ({"delayed_delivery_policies": "x"}, {"delayedDeliveryTickTimeMillis": True}, DEFAULT),
    ],
)
def test_each_value_is_the_topics_or_the_namespaces_or_the_brokers(
    namespace: dict[str, Any] | None, topic: dict[str, Any] | None, expected: DelayedDelivery
) -> None:
    assert effective_delayed(DEFAULT, namespace, topic) == expected


def test_what_is_due_depends_on_strictness_and_activity() -> None:
    assert DEFAULT.cutoff_ms(5000) == 6000
    assert DEFAULT._replace(strict=True).cutoff_ms(5000) == 5000
    assert DEFAULT._replace(active=False).cutoff_ms(5000) > 1 << 62

"""Readiness of brokers, as `/metrics` shows it without a probe."""

from __future__ import annotations

import pytest

from quire.servers.broker.web import takes_messages
from quire.servers.machine_metrics import register_ready
from quire.service.metrics import Metrics


@pytest.mark.parametrize(
    ("stops", "is_up", "bookies", "ready"),
    [
        (False, True, 2, True),
        (False, True, None, True),
        (False, True, 1, False),
        (False, False, 2, False),
        (True, True, 2, False),
    ],
)
def test_a_broker_is_ready_while_it_serves_with_zookeeper_and_enough_bookies(
    stops: bool, is_up: bool, bookies: int | None, ready: bool
) -> None:
    assert takes_messages(lambda: stops, lambda: is_up, lambda: bookies, 2) is ready


def test_readiness_is_read_at_each_scrape() -> None:
    metrics, states = Metrics(), [True, False]
    register_ready(metrics, lambda: states.pop(0))
    for value in ("1.0", "0.0"):
        assert f"\nquire_ready {value}\n" in metrics.exposition().decode()

"""Covers quire/servers/broker/ledger_client.py: what the keys about the choice of bookies mean."""

from __future__ import annotations

import pytest

from quire.servers.broker.ledger_client import LedgerClientKeys


@pytest.mark.parametrize(
    ("region", "rack", "policy"),
    [
        (True, True, "region-aware"),
        (True, False, "region-aware"),
        (False, True, "rack-aware"),
        (False, False, "random"),
    ],
)
def test_regions_count_before_racks(region: bool, rack: bool, policy: str) -> None:
    assert LedgerClientKeys(region_aware=region, rack_aware=rack).client.placement.policy == policy


def test_weights_are_asked_for_at_the_configured_intervals() -> None:
    keys = LedgerClientKeys(disk_weighted=True, weights_interval_s=7, weights_retry_s=3)
    assert keys.client.placement.disk_weighted
    assert (keys.watcher.weights_interval_s, keys.watcher.weights_retry_s) == (7, 3)
    assert not LedgerClientKeys().client.placement.disk_weighted

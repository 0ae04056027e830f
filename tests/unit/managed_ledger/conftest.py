"""Logs of brokers on one metadata tree and one set of ledgers; the marker `broker` configures the fixture `factory`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from managed_ledger.factory import ManagedLedgerFactory
from managed_ledger.managed_ledger import ManagedLedger
from tests.unit.managed_ledger.cluster import NAME, Cluster, in_cluster


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "broker(**options): options of the broker in memory; see the conftest of the room"
    )


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with in_cluster() as cluster:
        yield cluster


@pytest.fixture
async def factory(request: pytest.FixtureRequest, cluster: Cluster) -> AsyncIterator[ManagedLedgerFactory]:
    marker = request.node.get_closest_marker("broker")
    async with cluster.broker(**({} if marker is None else marker.kwargs)) as factory:
        yield factory


@pytest.fixture
async def log(factory: ManagedLedgerFactory) -> ManagedLedger:
    return await factory.open(NAME)

"""A ledger client over fake bookies, as most tests here need it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from quire.ledger import LedgerClient
from tests.unit.ledger.fake_bookie import FakeCluster


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "bookies(count): how many bookies the fixture `cluster` has; 3 without it")


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> FakeCluster:
    marker = request.node.get_closest_marker("bookies")
    return FakeCluster(3 if marker is None else marker.args[0])


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[LedgerClient]:
    async with cluster.client() as client:
        yield client

"""A ledger client over fake bookies, as most tests here need it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from quire.ledger import LedgerClient
from tests.unit.ledger.fake_bookie import FakeCluster


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "bookies(count=3, **config): bookies of the fixture `cluster`, configuration of the fixture `client`"
    )


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> FakeCluster:
    marker = request.node.get_closest_marker("bookies")
    return FakeCluster(marker.args[0] if marker is not None and marker.args else 3)


@pytest.fixture
async def client(cluster: FakeCluster, request: pytest.FixtureRequest) -> AsyncIterator[LedgerClient]:
    marker = request.node.get_closest_marker("bookies")
    async with cluster.client(**(marker.kwargs if marker is not None else {})) as client:
        yield client

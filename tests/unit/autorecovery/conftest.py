"""A cluster's metadata, as auditors and workers see it; and fake bookies with a client that repairs their ledgers."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from autorecovery.copying.replicator import Replicator
from autorecovery.ledger_checker import LedgerChecker
from quire.ledger import LedgerClient
from tests.unit.autorecovery.cluster import Cluster
from tests.unit.ledger.fake_bookie import FakeCluster


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "fakes(count=4, **config): bookies of the fixture `fakes`, and its client's keys"
    )


@pytest.fixture
async def cluster() -> Cluster:
    cluster = Cluster()
    await cluster.begin()
    return cluster


@pytest.fixture
def fakes(request: pytest.FixtureRequest) -> FakeCluster:
    marker = request.node.get_closest_marker("fakes")
    return FakeCluster(4 if marker is None else marker.args[0])


@pytest.fixture
async def client(request: pytest.FixtureRequest, fakes: FakeCluster) -> AsyncIterator[LedgerClient]:
    marker = request.node.get_closest_marker("fakes")
    async with fakes.client(**({} if marker is None else marker.kwargs)) as client:
        yield client


@pytest.fixture
async def checker(client: LedgerClient) -> LedgerChecker:
    return LedgerChecker(client, rng=random.Random(1))


@pytest.fixture
async def replicator(client: LedgerClient, checker: LedgerChecker) -> Replicator:
    return Replicator(client, checker)

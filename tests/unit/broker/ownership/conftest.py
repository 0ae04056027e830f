"""Ownerships of brokers on one metadata tree."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.broker.ownership.cluster import Cluster, in_cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with in_cluster() as cluster:
        yield cluster

"""Logs of brokers on one metadata tree and one set of ledgers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from managed_ledger.factory import ManagedLedgerFactory
from tests.unit.managed_ledger.cluster import Cluster, in_cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with in_cluster() as cluster:
        yield cluster


@pytest.fixture
async def factory(cluster: Cluster) -> AsyncIterator[ManagedLedgerFactory]:
    async with cluster.broker() as factory:
        yield factory

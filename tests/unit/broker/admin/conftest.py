"""The admin resources of a default cluster; tests that need another one enter `on_cluster` themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.broker.admin.cluster_fakes import ClusterRest, on_cluster


@pytest.fixture
async def rest() -> AsyncIterator[ClusterRest]:
    async with on_cluster() as rest:
        yield rest

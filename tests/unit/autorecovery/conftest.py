"""A cluster of bookies and its metadata, as auditors and workers see it."""

from __future__ import annotations

import pytest

from tests.unit.autorecovery.cluster import Cluster


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()

"""A client and the fake broker it is connected to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from quire.client.client import Client
from simulation.machines.world import Universe
from tests.unit.client.fake_broker import FakeBroker, connected


@pytest.fixture
async def both(universe: Universe) -> AsyncIterator[tuple[Client, FakeBroker]]:
    async with connected(universe) as both:
        yield both


@pytest.fixture
async def client(both: tuple[Client, FakeBroker]) -> Client:
    return both[0]


@pytest.fixture
async def broker(both: tuple[Client, FakeBroker]) -> FakeBroker:
    return both[1]

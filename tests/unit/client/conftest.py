"""A client and the fake broker it is connected to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from quire.client.client import Client
from simulation.machines.world import Universe
from tests.support.credentials import authentication
from tests.unit.broker.peers import Room, in_broker
from tests.unit.client.fake_broker import FakeBroker, connected


@pytest.fixture
async def secured() -> AsyncIterator[Room]:
    """A real broker that authenticates its clients by tokens and passwords."""
    async with in_broker(authentication=authentication()) as room:
        yield room


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

"""Fixtures of simulated machines. Loaded from tests/conftest.py; a test that takes one is `seeded`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from quire.world.doors import World
from simulation.machines.world import Universe, in_universe, on_host
from tests.support.async_tests import seed_of


@pytest.fixture
async def universe(request: pytest.FixtureRequest) -> AsyncIterator[Universe]:
    """A universe of the seed that `@pytest.mark.seeded(seed)` names; it keeps its trace."""
    seed = seed_of(request.node)
    assert seed is not None
    async with in_universe(seed, keep=True) as universe:
        yield universe


@pytest.fixture
async def world(universe: Universe) -> AsyncIterator[World]:
    """The World of a host of the universe, called "host"."""
    async with on_host(universe) as world:
        yield world

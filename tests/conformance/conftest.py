"""Fixtures of tests that hold for each maker of a door."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from quire.world.doors import World
from quire.world.real import real_world
from simulation.machines.world import in_world


@pytest.fixture(
    params=[
        pytest.param("real", marks=pytest.mark.real_clock),
        pytest.param("simulated", marks=pytest.mark.seeded),
    ]
)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Yield the real world, then a simulated one."""
    if request.param == "real":
        yield real_world()
    else:
        async with in_world(1) as world:
            yield world

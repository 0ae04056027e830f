"""Fixtures: a bookie with default options, and the machine of a bookie."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bookie.bookie import Bookie
from quire.metadata.local.memory import MemoryTree
from quire.world.doors import World
from simulation.machines.world import Universe
from tests.unit.bookie.build import opened
from tests.unit.bookie.machine import Machine


@pytest.fixture
async def bookie(world: World) -> AsyncIterator[Bookie]:
    async with opened(world, MemoryTree()) as bookie:
        yield bookie


@pytest.fixture
async def machine(universe: Universe) -> Machine:
    return Machine(universe)

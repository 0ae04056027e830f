"""Fixtures: a bookie, a client of it, and the machine of a bookie."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from bookie.bookie import Bookie
from quire.metadata.local.memory import MemoryTree
from quire.world.doors import World
from simulation.machines.world import Universe
from tests.unit.bookie.build import CONFIG, Client, opened
from tests.unit.bookie.machine import Machine


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "bookie(**settings): configuration of the fixture `bookie`")
    config.addinivalue_line("markers", "journal(**settings): configuration of the fixture `journal`")


@pytest.fixture
def tree() -> MemoryTree:
    """The metadata of the bookie's cluster."""
    return MemoryTree()


@pytest.fixture
async def bookie(request: pytest.FixtureRequest, world: World, tree: MemoryTree) -> AsyncIterator[Bookie]:
    marker = request.node.get_closest_marker("bookie")
    async with opened(world, tree, replace(CONFIG, **(marker.kwargs if marker is not None else {}))) as bookie:
        yield bookie


@pytest.fixture
async def client(bookie: Bookie) -> Client:
    return Client(bookie)


@pytest.fixture
async def machine(universe: Universe) -> Machine:
    return Machine(universe)

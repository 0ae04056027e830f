"""A broker in memory, and a connection to it. Its options are those of the markers `broker` of a test or its module."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.broker.peers import Peer, Room, in_broker


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "broker(**options): options of the broker in memory; see the conftest of the room"
    )


@pytest.fixture
async def room(request: pytest.FixtureRequest) -> AsyncIterator[Room]:
    markers = reversed([*request.node.iter_markers("broker")])  # the closest one comes last, and wins
    async with in_broker(**{name: value for marker in markers for name, value in marker.kwargs.items()}) as room:
        yield room


@pytest.fixture
async def peer(room: Room) -> Peer:
    return await room.connect()

"""A broker with default options; tests that need others enter `in_broker` themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.broker.peers import Room, in_broker


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with in_broker() as room:
        yield room

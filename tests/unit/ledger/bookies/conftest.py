"""A link whose answers the test determines, and what a connection over it needs."""

from __future__ import annotations

import pytest
import trio

from quire.ledger.bookies.deadlines import DeadlineWheel
from tests.unit.ledger.bookies.scripted import Receiver, ScriptedLink


@pytest.fixture
def link() -> ScriptedLink:
    return ScriptedLink()


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
async def wheel(nursery: trio.Nursery) -> DeadlineWheel:
    wheel = DeadlineWheel(1.0)
    nursery.start_soon(wheel.run)
    return wheel

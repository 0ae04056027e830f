"""A nursery around a test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio


@pytest.fixture
async def nursery() -> AsyncIterator[trio.Nursery]:
    async with trio.open_nursery() as found:
        yield found
        found.cancel_scope.cancel()

"""A bench for cursors with default settings; tests that need others enter `in_bench` themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.cursors.fake_log import Bench, in_bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with in_bench() as bench:
        yield bench

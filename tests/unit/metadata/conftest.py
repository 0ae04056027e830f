"""A tree in memory, and a session on it."""

from __future__ import annotations

import pytest

from quire.metadata.local.memory import MemoryStore, MemoryTree


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ids(*ids): ids that new ledgers of the fixture `ledgers` get")


@pytest.fixture
def tree() -> MemoryTree:
    return MemoryTree()


@pytest.fixture
async def store(tree: MemoryTree) -> MemoryStore:
    return MemoryStore(tree)

"""Processes that run the histories of a test session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulation.common.sweep import workers
from tests.simulation.histories import JOBS, Histories


@pytest.fixture(scope="session")
def histories() -> Iterator[Histories]:
    with workers(JOBS) as processes:
        yield Histories(processes)

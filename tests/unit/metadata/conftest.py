"""Markers of the tests of metadata."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ids(*ids): ids that new ledgers of the fixture `ledgers` get")

"""One server for all protocol tests of a run; each test uses a topic of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from tests.support.admin_rest import Admin
from tests.support.server import StandaloneProcess, standalone

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    folder: Path = tmp_path_factory.mktemp("standalone")
    with standalone(folder) as running:
        yield running


@pytest.fixture
def client(server: StandaloneProcess) -> Iterator[pulsar.Client]:
    made = pulsar.Client(
        server.url, operation_timeout_seconds=10, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    )
    yield made
    made.close()


@pytest.fixture
def admin(server: StandaloneProcess) -> Iterator[Admin]:
    made = Admin(server)
    with made.http:
        yield made


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/t{next(_numbers)}"

"""One Spark session and one server for all Spark tests of a run: each test takes a topic of its own. See peer.py."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

from tests.spark.peer import (
    FILES,
    NOT_ON_PULSAR,
    PULSAR,
    PULSAR_ALONE,
    SECURED,
    SIDE,
    ThroughBrokers,
    options_of,
    quiet_client,
    serve,
)
from tests.spark.session import make_session, use_installed_pyspark
from tests.support.server import StandaloneProcess

_numbers = itertools.count()
_HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the files that the server of the tests is not for."""
    name = str(collection_path.relative_to(_HERE))
    if not collection_path.name.startswith("test_"):
        return None
    if name == "test_secure_pulsar.py":
        return SIDE != "pulsar"  # (it has a server of its own, whose security it needs)
    return name not in FILES if PULSAR else name in PULSAR_ALONE


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that run with Quire alone."""
    if PULSAR:
        left = [item for item in items if getattr(item, "originalname", item.name) in NOT_ON_PULSAR]
        items[:] = [item for item in items if item not in left]
        config.hook.pytest_deselected(items=left)


@pytest.fixture(scope="session", autouse=True)
def spark_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    use_installed_pyspark(tmp_path_factory.mktemp("spark") / "home")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    folder: Path = tmp_path_factory.mktemp("spark-standalone")
    with serve(folder) as running:
        yield running


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Make a session with local[2,3]: two tasks at a time, and three attempts of a failing task, as on a cluster."""
    session = make_session(tmp_path_factory.mktemp("spark"))
    yield ThroughBrokers(session) if SECURED else session
    session.stop()


@pytest.fixture
def options(server: StandaloneProcess) -> dict[str, str]:
    """Return the options of every reader and writer of these tests, apart from its topic."""
    return options_of(server)


@pytest.fixture
def client(server: StandaloneProcess) -> Iterator[pulsar.Client]:
    """Open the official client."""
    made = quiet_client(server.url)
    yield made
    made.close()


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/spark{next(_numbers)}"

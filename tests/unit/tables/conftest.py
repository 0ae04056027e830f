"""A cluster for the tests of tables, with short ledgers, so that most entries are in closed ones."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pulsar
import pyarrow as pa
import pytest

import quire
from quire.spark.runtime import close_runtime
from tests.support.small_cluster import SmallCluster, small_cluster
from tests.unit.spark.layouts import KEYS, make_namespaces
from tests.unit.spark.reading.via import Links, begin

_numbers = itertools.count()


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallCluster]:
    keys = {**KEYS, "managedLedgerMaxEntriesPerLedger": 20, "defaultRetentionTimeInMinutes": -1}
    with small_cluster(tmp_path_factory.mktemp("cluster"), keys={**keys, "defaultRetentionSizeInMB": -1}) as made:
        make_namespaces(made)
        yield made


@pytest.fixture(scope="package")
def client(cluster: SmallCluster) -> Iterator[pulsar.Client]:
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    made = pulsar.Client(cluster.url, operation_timeout_seconds=30, logger=logger)
    yield made
    made.close()


@pytest.fixture
def links() -> Iterator[Links]:
    made = Links()
    begin(made)
    yield made
    close_runtime()


@pytest.fixture
def table(cluster: SmallCluster, links: Links) -> Callable[..., pa.RecordBatchReader]:
    """Return `quire.table` with the addresses of the cluster."""
    made: Any = functools.partial(quire.table, service_url=cluster.url, admin_url=cluster.web)
    return made  # type: ignore[no-any-return]


@pytest.fixture
def topic() -> str:
    return f"table{next(_numbers)}"

"""A cluster for the tests of reads past the broker, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pulsar
import pytest

from quire.spark.runtime import close_runtime
from tests.support.small_cluster import SmallCluster, small_cluster
from tests.unit.spark.layouts import KEYS, make_namespaces
from tests.unit.spark.reading.via import Links, begin


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallCluster]:
    with small_cluster(tmp_path_factory.mktemp("cluster"), keys=KEYS) as made:
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

"""Server of the tests: Quire, or Apache Pulsar where `scripts/test --interop` sets QUIRE_TEST_PEER=pulsar.

With Pulsar the tests of `FILES` run, but those of `NOT_ON_PULSAR`."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

from tests.support.server import StandaloneProcess, standalone

PULSAR = os.environ.get("QUIRE_TEST_PEER") == "pulsar"

FILES = (
    "test_batch_read.py",
    "test_data_loss.py",
    "test_discovery.py",
    "test_exactly_once.py",
    "test_exactly_once_kills.py",
    "test_pipelines.py",
    "test_read_via.py",
    "test_same_rows.py",
    "test_schemas.py",
    "test_secure_pulsar.py",
    "test_stream_read.py",
    "test_tables.py",
    "test_write.py",
    "pipelines/test_topic_kills.py",
    "pipelines/test_topic_pipelines.py",
)
"""Files of tests/spark whose tests run with either server."""
NOT_ON_PULSAR = {
    "test_a_standalone_server_has_no_bookie_to_read_from": "the bookie of Pulsar's standalone server has a port",
}
"""Tests of these files that run with Quire alone, and why."""
OTHER_FILES = {
    "test_archive_cluster.py": "kills processes of a cluster of Quire",
    "test_archive_kills.py": "100,000 rows beside a server that is killed often, and that starts in seconds",
    "test_own_cluster.py": "Spark's processes, not the server's, are what is tested",
    "test_connect.py": "the way from Spark's client to its server is what is tested, and not the server of topics",
    "test_leaks.py": "counts what Quire's broker keeps of clients",
    "test_offload.py": "the brokers' REST interface for offloading is Quire's own (quireOffload, quireEntries)",
    "test_offload_served.py": "brokers of Quire read the files of its own offload",
    "test_pages.py": "the pages use Quire's own commands and server",
    "test_stateful.py": "state is Spark's, and the server of topics makes no difference to it",
    "test_secure_cluster.py": "a secure cluster of Quire; test_secure_pulsar.py has Pulsar's",
}
"""The other files, and why they run with Quire alone."""


def serve(folder: Path, conf: dict[str, object] | None = None) -> AbstractContextManager[StandaloneProcess]:
    """Run a standalone server of the chosen kind."""
    if PULSAR:
        from tests.interop.apache_standalone import apache_standalone

        return apache_standalone(folder, conf)
    return standalone(folder, conf)

"""Server of the tests: Quire, or Apache Pulsar where `scripts/test --interop` sets QUIRE_TEST_PEER to one of `SIDES`.

With Pulsar the tests of `FILES` run, but those of `NOT_ON_PULSAR`. With its security on, sources also have
`readVia=broker`, so that they read nothing past the brokers."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pulsar

from tests.support import web
from tests.support.credentials import token
from tests.support.server import StandaloneProcess, standalone

SIDES = {
    "quire": "Quire, without security",
    "pulsar": "Apache Pulsar, without security",
    "pulsar-token": "Apache Pulsar, with authorization and a token",
    "pulsar-tls": "Apache Pulsar, with authorization and a token over TLS",
}
SIDE = os.environ.get("QUIRE_TEST_PEER", "quire")
assert SIDE in SIDES, f"QUIRE_TEST_PEER is {SIDE!r}: it must be one of {', '.join(SIDES)}"
PULSAR = SIDE != "quire"
SECURED = SIDE in ("pulsar-token", "pulsar-tls")

FILES = (
    "test_archive_kills.py",
    "test_batch_read.py",
    "test_data_loss.py",
    "test_discovery.py",
    "test_exactly_once.py",
    "test_exactly_once_kills.py",
    "test_leaks.py",
    "test_pipelines.py",
    "test_read_via.py",
    "test_same_rows.py",
    "test_refused_on_pulsar.py",
    "test_schemas.py",
    "test_secure_pulsar.py",
    "test_stateful.py",
    "test_stream_read.py",
    "test_tables.py",
    "test_write.py",
    "pipelines/test_topic_kills.py",
    "pipelines/test_topic_pipelines.py",
)
"""Files of tests/spark whose tests run with Apache Pulsar, and but for `PULSAR_ALONE` with Quire."""
PULSAR_ALONE = {
    "test_refused_on_pulsar.py": "what Pulsar's brokers do not have",
    "test_secure_pulsar.py": "a server with every kind of credential; test_secure_cluster.py has Quire's",
}
"""Files of these whose tests run with Pulsar alone, and why."""
NOT_ON_PULSAR = {
    "test_a_standalone_server_has_no_bookie_to_read_from": "the bookie of Pulsar's standalone server has a port",
}
"""Tests of these files that run with Quire alone, and why."""
OTHER_FILES = {
    "test_archive_cluster.py": "kills processes of a cluster of Quire",
    "test_own_cluster.py": "Spark's processes, not the server's, are what is tested",
    "test_connect.py": "the way from Spark's client to its server is what is tested, and not the server of topics",
    "test_offload.py": "the brokers' REST interface for offloading is Quire's own (quireOffload, quireEntries)",
    "test_offload_served.py": "brokers of Quire read the files of its own offload",
    "test_pages.py": "the pages use Quire's own commands and server",
    "test_secure_cluster.py": "a secure cluster of Quire; test_secure_pulsar.py has Pulsar's",
}
"""The other files, and why they run with Quire alone."""


def serve(folder: Path, conf: dict[str, object] | None = None) -> AbstractContextManager[StandaloneProcess]:
    """Run a standalone server of the chosen kind.

    It keeps idle topics: a test may be slow between its steps, and most topics have no subscription.
    """
    conf = {"brokerDeleteInactiveTopicsEnabled": "false", **(conf or {})}
    if SECURED:
        from tests.interop.secured_standalone import ROLE, secured_standalone

        web.authorize(token(ROLE))
        return secured_standalone(folder, conf)
    if PULSAR:
        from tests.interop.apache_standalone import apache_standalone

        return apache_standalone(folder, conf)
    return standalone(folder, conf)


def options_of(server: StandaloneProcess) -> dict[str, str]:
    """Return the options of every reader and writer, apart from its topic."""
    if not SECURED:
        return {"service.url": server.url, "admin.url": server.web}
    from tests.interop.secured_standalone import SecuredStandalone

    assert isinstance(server, SecuredStandalone)
    return server.options_of_clients(tls=SIDE == "pulsar-tls")


def headers() -> dict[str, str]:
    """Return the headers of a request to the REST interface; those of `tests.support.web` have them."""
    if not SECURED:
        return {}
    from tests.interop.secured_standalone import ROLE

    return {"Authorization": f"Bearer {token(ROLE)}"}


def quiet_client(url: str) -> pulsar.Client:
    """Return an official client that retries for a minute and logs nothing."""
    made: dict[str, Any] = {}
    if SECURED:
        from tests.interop.secured_standalone import ROLE

        made["authentication"] = pulsar.AuthenticationToken(token(ROLE))
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    return pulsar.Client(url, operation_timeout_seconds=60, logger=logger, **made)


class ThroughBrokers:
    """A Spark session whose readers have `readVia=broker`, unless a test gives the option itself."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._session, name)
        return found.option("readVia", "broker") if name in ("read", "readStream") else found

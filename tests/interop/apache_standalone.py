"""Apache Pulsar 4.2.4 standalone as a child process, with the interface of the tests' Quire standalone."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import httpx2

from bench.servers import ADD_OPENS, START_S
from quire.servers.zookeeper.process import find_java
from tests.support import web
from tests.support.forking import Process
from tests.support.server import StandaloneProcess

_MEMORY = ("-Xms256m", "-Xmx768m", "-XX:MaxDirectMemorySize=768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_DRIVERS = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadata"
KEYS: dict[str, object] = {
    "clusterName": "standalone",
    "metadataStoreUrl": "",
    "bindAddress": "127.0.0.1",
    "managedLedgerDefaultEnsembleSize": 1,
    "managedLedgerDefaultWriteQuorum": 1,
    "managedLedgerDefaultAckQuorum": 1,
    "loadBalancerEnabled": "false",
    "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.NoopLoadManager",
    "systemTopicEnabled": "true",
    "topicLevelPoliciesEnabled": "true",
    "allowLoopback": "true",
    "nettyMaxFrameSizeBytes": 5253120,  # as in its own standalone.conf: an entry of the largest message fits
    "diskUsageThreshold": 0.99,
    "diskUsageLwmThreshold": 0.99,
}
"""Settings of every standalone server of the original."""


def standalone_command() -> list[str]:
    """Return the command of the original's standalone server, without its own options."""
    assert "QUIRE_INTEROP_PULSAR_SERVER" in os.environ, "run this by scripts/test --interop"
    made = os.environ["QUIRE_INTEROP_PULSAR_SERVER"]
    drivers = [f"-Dbookkeeper.metadata.{each.lower()}.drivers={_DRIVERS}{each}Driver" for each in ("Bookie", "Client")]
    command = [find_java(), *_MEMORY, *ADD_OPENS, *drivers, "-cp", f"{made}/classes:{made}/lib/*"]
    return [*command, "-Dlog4j.configurationFile=log4j2-server.xml", "org.apache.pulsar.PulsarStandaloneStarter"]


class ApacheStandalone(StandaloneProcess):
    """Apache Pulsar standalone: broker, bookie and metadata in one process; one data directory, one pair of ports."""

    def __init__(self, folder: Path, conf: dict[str, object] | None = None) -> None:
        super().__init__(folder, conf)
        self.command = standalone_command()
        self.settings = {
            **KEYS,
            "advertisedAddress": "127.0.0.1",
            "brokerServicePort": self.port,
            "webServicePort": self.web_port,
            **self.settings,
        }

    def options(self) -> list[str]:
        return ["--config", str(self.conf), "-nss", "-nfw"]

    def _started(self, command: list[str], cwd: Path) -> Process:
        # Its data are in folders of the current one.
        with open(self.log_path, "ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder)

    def is_ready(self) -> bool:
        """Return whether it serves the namespaces that its start creates one after the other."""
        try:
            answers = [
                web.get(f"{self.web}/admin/v2/namespaces/{name}", timeout=10)
                for name in ("public/default", "pulsar/system")
            ]
        except httpx2.TransportError:
            return False
        return all(answer.status_code == 200 for answer in answers)

    def wait_ready(self) -> Self:
        """Wait until it serves; a JVM on a busy machine needs minutes."""
        assert self.process is not None
        deadline = time.monotonic() + START_S
        while not self.is_ready():
            code = self.process.poll()
            if code is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"Pulsar is not ready (exit code {code}):\n{self.said()[-4000:]}")
            time.sleep(0.1)
        return self

    def check_log(self) -> None:
        """Do nothing: the original's errors are not ours to judge."""


@contextmanager
def apache_standalone(folder: Path, conf: dict[str, object] | None = None) -> Iterator[ApacheStandalone]:
    """Run a server; stop it at the end."""
    server = ApacheStandalone(folder, conf)
    try:
        yield server.start()
    finally:
        server.kill()

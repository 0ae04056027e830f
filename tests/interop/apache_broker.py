"""Apache Pulsar 4.2.4's broker as a child process, from the jars of tests/interop/pulsar_server."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx2

from bench.servers import ADD_OPENS
from quire.servers.zookeeper.process import find_java
from tests.interop.java import START_DEADLINE_S
from tests.support import web
from tests.support.broker_process import CLUSTER
from tests.support.server import free_port

_MEMORY = ("-Xms128m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_DRIVERS = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadata"


class ApacheBroker:
    """The original's broker on a cluster's metadata: one folder, two ports, one process at a time."""

    name = "Pulsar"

    def __init__(self, folder: Path, metadata_url: str, **settings: object) -> None:
        self.port, self.web_port = free_port(), free_port()
        self.url = f"pulsar://127.0.0.1:{self.port}"
        self.web = f"http://127.0.0.1:{self.web_port}"
        self.folder = folder
        self.log_path = folder / "broker.log"
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        given = {
            "clusterName": CLUSTER,
            "metadataStoreUrl": metadata_url,
            "configurationMetadataStoreUrl": metadata_url,
            "brokerServicePort": self.port,
            "webServicePort": self.web_port,
            "bindAddress": "127.0.0.1",
            "advertisedAddress": "127.0.0.1",
            **settings,
        }
        self.conf = folder / "broker.conf"
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in given.items()))

    def start(self) -> ApacheBroker:
        assert self.process is None
        assert "QUIRE_INTEROP_PULSAR_SERVER" in os.environ, "run this by scripts/test --interop"
        made = os.environ["QUIRE_INTEROP_PULSAR_SERVER"]
        command = [find_java(), *_MEMORY, *ADD_OPENS]
        command += [
            f"-Dbookkeeper.metadata.{each.lower()}.drivers={_DRIVERS}{each}Driver" for each in ("Bookie", "Client")
        ]
        command += ["-cp", f"{made}/classes:{made}/lib/*", "-Dlog4j.configurationFile=log4j2-server.xml"]
        command += ["org.apache.pulsar.PulsarBrokerStarter", "--broker-conf", str(self.conf)]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_DEADLINE_S
        while not self._serves():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the original's broker did not become ready:\n{self.log()}")
            time.sleep(0.05)
        return self

    def _serves(self) -> bool:
        try:
            return self.ask("GET", "/admin/v2/brokers/ready").status_code == 200
        except httpx2.TransportError:
            return False

    def ask(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """Make a REST request; redirects are not followed."""
        return web.request(method, f"{self.web}{path}", timeout=60, **options)

    def stop(self, seconds: float = 60) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(seconds)
        self.process = None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def log(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""

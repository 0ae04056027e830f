"""Servers under test: Quire standalone from this checkout, Apache Pulsar standalone from Maven's jars."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from bench.procs import tree
from bench.waiting import poll_until

PULSAR_VERSION = "4.2.4"
_JARS = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "quire-bench" / f"pulsar-{PULSAR_VERSION}"

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>peer</artifactId><version>1</version>
<dependencyManagement><dependencies><dependency><groupId>org.apache.pulsar</groupId><artifactId>pulsar</artifactId>
<version>{PULSAR_VERSION}</version><type>pom</type><scope>import</scope></dependency></dependencies></dependencyManagement>
<dependencies>
<dependency><groupId>org.apache.pulsar</groupId><artifactId>pulsar-broker</artifactId><version>{PULSAR_VERSION}</version></dependency>
<dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-core</artifactId></dependency>
<dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j2-impl</artifactId></dependency>
<dependency><groupId>com.lmax</groupId><artifactId>disruptor</artifactId><version>3.4.4</version></dependency>
</dependencies></project>
"""

_OPENS = (
    "java.base/java.io",
    "java.base/java.util.zip",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/sun.net",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
    "java.base/jdk.internal.platform",
)
ADD_OPENS = [part for each in _OPENS for part in ("--add-opens", f"{each}=ALL-UNNAMED")]
"""Options of the original's JVM."""
STOP_S = 30.0
START_S = 300.0
"""Time for the original to start; it needs ten seconds on an idle machine, and over two minutes on a busy one."""

_PULSAR_CONF = """\
metadataStoreUrl=
brokerServicePort={port}
webServicePort={web}
bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
clusterName=standalone
managedLedgerDefaultEnsembleSize=1
managedLedgerDefaultWriteQuorum=1
managedLedgerDefaultAckQuorum=1
loadBalancerEnabled=false
loadManagerClassName=org.apache.pulsar.broker.loadbalance.NoopLoadManager
systemTopicEnabled=true
topicLevelPoliciesEnabled=true
allowAutoTopicCreation=true
allowLoopback=true
diskUsageThreshold=0.99
diskUsageLwmThreshold=0.99
journalSyncData=true
"""


NONE: Mapping[str, object] = MappingProxyType({})


def _lines(settings: Mapping[str, object]) -> str:
    """Return the text of a configuration file."""
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def stop_process(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM, and SIGKILL if the process does not end in time; no effect if it has ended."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Server:
    """A running server: its port, its processes, and the time until it listened."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], port: int, web_port: int, started: float) -> None:
        self.name = name
        self.process = process
        self.port = port
        self.web_port = web_port
        self.started = started
        """time.perf_counter() at the moment of the start."""

    @property
    def pids(self) -> list[int]:
        return tree(self.process.pid)

    def wait_until_listening(self, seconds: float) -> None:
        if not poll_until(lambda: self.process.poll() is not None or listens(self.port), seconds, poll_s=0.005):
            raise RuntimeError(f"{self.name} does not listen after {seconds} s; see its log")
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended with {self.process.returncode}; see its log")


@contextlib.contextmanager
def quire(folder: Path, keys: Mapping[str, object] = NONE) -> Iterator[Server]:
    """Start Quire standalone with its data and log in `folder`, fsync on. `keys`: of its configuration."""
    port, web = free_port(), free_port()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "standalone.conf").write_text(_lines(keys))
    command = [
        sys.executable,
        "-m",
        "quire.cli.main",
        "standalone",
        "--data-dir",
        str(folder / "data"),
        "--port",
        str(port),
        "--web-port",
        str(web),
        "--conf",
        "standalone.conf",
    ]
    yield from _running("quire", command, folder, port, web, 30)


def pulsar_jars() -> Path | None:
    """Return the folder of Pulsar's jars, fetched by Maven on first use; None without Maven or Java."""
    if shutil.which("mvn") is None or shutil.which("java") is None:
        return None
    lib = _JARS / "lib"
    if not (_JARS / "complete").exists():
        _JARS.mkdir(parents=True, exist_ok=True)
        (_JARS / "pom.xml").write_text(_POM)
        print(f"fetching Apache Pulsar {PULSAR_VERSION} (about 240 MB) through Maven ...", flush=True)
        subprocess.run(
            ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={lib}"], cwd=_JARS, check=True
        )
        (_JARS / "complete").touch()
    return lib


@contextlib.contextmanager
def pulsar(folder: Path, lib: Path, settings: Mapping[str, object] = NONE) -> Iterator[Server]:
    """Start Apache Pulsar standalone with journalSyncData=true, its data and log in `folder`."""
    port, web = free_port(), free_port()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "standalone.conf").write_text(_PULSAR_CONF.format(port=port, web=web) + _lines(settings))
    metadata = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadata"
    command = [
        "java",
        "-cp",
        f".:{lib}/*",
        *ADD_OPENS,
        "-Xms2g",
        "-Xmx2g",
        "-XX:MaxDirectMemorySize=4g",
        "-XX:+UseZGC",
        "-XX:+AlwaysPreTouch",
        f"-Dbookkeeper.metadata.bookie.drivers={metadata}BookieDriver",
        f"-Dbookkeeper.metadata.client.drivers={metadata}ClientDriver",
        "org.apache.pulsar.PulsarStandaloneStarter",
        "--config",
        "standalone.conf",
        "-nss",
        "-nfw",
    ]
    yield from _running("pulsar", command, folder, port, web, START_S)


def _running(name: str, command: list[str], folder: Path, port: int, web_port: int, seconds: float) -> Iterator[Server]:
    with open(folder / "server.log", "ab") as log:
        started = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    server = Server(name, process, port, web_port, started)
    try:
        server.wait_until_listening(seconds)
        yield server
    finally:
        stop_process(process)

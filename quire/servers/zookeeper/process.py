"""`quire zookeeper`: ZooKeeper's own server, from a folder of its jars (`quire.servers.zookeeper.jars`).

    java -cp 'JARS/*' org.apache.zookeeper.server.quorum.QuorumPeerMain zoo.cfg

It runs as a child process, which ends with its parent, even after a kill -9.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from quire.servers.errors import CliError
from quire.servers.zookeeper.jars import fetch_jars, find_jars
from quire.servers.zookeeper.probe import ZooKeeperServerError, probe_of

MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
DEFAULT_PORT = 2181
DEFAULT_TICK_MS = 2000
START_DEADLINE_S = 60.0
STOP_GRACE_S = 10.0

_PR_SET_PDEATHSIG = 1
_FAST_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def find_java(environment: Mapping[str, str] = os.environ) -> str:
    """The `java` of JAVA_HOME, or else of PATH."""
    home = environment.get("JAVA_HOME")
    java = Path(home) / "bin/java" if home else None
    if java is not None and java.exists():
        return str(java)
    found = shutil.which("java", path=environment.get("PATH"))
    if found is None:
        raise ZooKeeperServerError("there is no java: install a Java 17 runtime, or set JAVA_HOME")
    return found


def write_conf(
    data_dir: Path, *, host: str = "0.0.0.0", port: int = DEFAULT_PORT, tick_ms: int = DEFAULT_TICK_MS
) -> Path:
    """Write `zoo.cfg` of a single server into its data directory, which is made; returns its path."""
    data_dir.mkdir(parents=True, exist_ok=True)
    conf = data_dir.absolute() / "zoo.cfg"
    settings: dict[str, object] = {
        "tickTime": tick_ms,
        "dataDir": data_dir.absolute(),
        "clientPort": port,
        "clientPortAddress": host,
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "srvr,ruok,mntr,stat",
        "autopurge.purgeInterval": 1,
    }
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return conf


def java_command(
    conf: Path, *, log_level: str = "warn", options: tuple[str, ...] = (), jars: Path | None = None
) -> list[str]:
    """Return the command that runs the server with a zoo.cfg; `jars` as for `find_jars`. CliError if Java or the jars
    are missing."""
    java, jars = find_java(), find_jars(jars)
    settings = (
        "-Dzookeeper.admin.enableServer=false",
        f"-Dlog4j2.level={log_level}",
        f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}",
    )
    return [java, *_FAST_START, *settings, *options, "-cp", f"{jars}/*", MAIN_CLASS, str(conf)]


def start_server(conf: Path, *, log_level: str = "warn", jars: Path | None = None) -> subprocess.Popen[bytes]:
    """Start the server as a child process that ends with this one, and wait until it serves. Call it from the main
    thread.
    """
    probe = probe_of(conf)
    if probe.is_taken():
        raise ZooKeeperServerError(f"something listens on {probe.address} already")
    command = java_command(conf, log_level=log_level, jars=jars)
    # (The child dies with the thread that made it, so that must be the one that lives as long as the process.)
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, preexec_fn=_die_with_parent)
    deadline = time.monotonic() + START_DEADLINE_S
    while not probe.answers():
        if server.poll() is not None:
            raise ZooKeeperServerError(f"ZooKeeper ended with code {server.returncode}: see the lines above")
        if time.monotonic() > deadline:
            server.kill()
            server.wait()
            raise ZooKeeperServerError(f"ZooKeeper does not answer on {probe.address} after {START_DEADLINE_S:g} s")
        time.sleep(0.02)
    return server


def run_zookeeper(
    data_dir: Path,
    *,
    host: str,
    port: int,
    conf: Path | None,
    log_level: str,
    jars: Path | None = None,
    fetch: bool = False,
) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code. `fetch`: have Maven put the jars into `jars` first."""
    started = time.monotonic()

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        if fetch and jars is None:
            raise ZooKeeperServerError("--fetch-jars needs --jars: the folder to put them into")
        if fetch and jars is not None:
            fetch_jars(jars)
        if conf is None:
            conf = write_conf(data_dir, host=host, port=port)
        elif not conf.exists():
            raise ZooKeeperServerError(f"there is no file {conf}")
        signal.signal(signal.SIGTERM, stop)
        server = start_server(conf, log_level=log_level, jars=jars)
    except CliError as error:
        print(f"quire zookeeper: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    taken_s = time.monotonic() - started
    print(f"ready zookeeper={probe_of(conf).address} conf={conf} pid={server.pid} start={taken_s:.2f}s", flush=True)
    try:
        code = server.wait()
    except KeyboardInterrupt:
        server.terminate()
        try:
            server.wait(STOP_GRACE_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            server.kill()
            server.wait()
        return 0
    print(f"quire zookeeper: the server ended with code {code}", file=sys.stderr)
    return 1


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

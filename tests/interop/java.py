"""Apache BookKeeper, of the version that was chosen, as child processes: the tester, the shell, and bookies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

from quire.servers.zookeeper.process import find_java
from tests.interop.shell_forms import as_of_4_17
from tests.support.server import free_port

COMMAND_DEADLINE_S = 300.0
START_DEADLINE_S = 90.0
_FAST_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_OPENS = ("--add-opens", "java.base/java.io=ALL-UNNAMED")
"""Options without which a bookie of the original cannot query the page cache, and logs an error."""
_IPV4 = ("-Djava.net.preferIPv4Stack=true",)
"""Without it, a bookie of 4.18 makes an invalid id of the address ::1%lo of the loopback interface."""


def classpath() -> str:
    assert "QUIRE_INTEROP" in os.environ, "run this by scripts/test --interop"
    made = Path(os.environ["QUIRE_INTEROP"])
    return f"{made}/classes:{made}/lib/*"


def java(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a Java program to its end."""
    return subprocess.run(
        [find_java(), "-Xmx384m", *_FAST_START, "-cp", classpath(), *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_DEADLINE_S,
        check=False,
    )


def run_tester(uri: str, *arguments: str) -> str:
    """Return the tester's output; it must have found nothing wrong."""
    done = java("Main", uri, *arguments)
    assert done.returncode == 0, done.stdout
    return done.stdout


def shell(conf: Path, *arguments: str) -> str:
    """Return the output of a command of the original's shell, in the form of 4.17.3; it must have succeeded."""
    main = ("-Dlog4j.configurationFile=log4j2-shell.xml", "org.apache.bookkeeper.bookie.BookieShell")
    done = java(*main, "-conf", str(conf), *arguments)
    assert done.returncode == 0, done.stdout
    return as_of_4_17(done.stdout)


class ApacheBookie:
    """The original's bookie: one folder, one port, one process at a time."""

    def __init__(self, folder: Path, metadata_uri: str, *, conf: dict[str, object] | None = None) -> None:
        self.port = free_port()
        self.id = f"127.0.0.1:{self.port}"
        self.log_path = folder / "bookie.log"
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "bookiePort": self.port,
            "listeningInterface": "lo",
            "advertisedAddress": "127.0.0.1",
            "allowLoopback": "true",
            "metadataServiceUri": metadata_uri,
            "journalDirectories": folder / "journal",
            "ledgerDirectories": folder / "ledgers",
            "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
            "journalPreAllocSizeMB": 1,
            "entryLogFilePreallocationEnabled": "false",
            "diskUsageThreshold": 0.99,
            "diskUsageWarnThreshold": 0.98,
            "dbStorage_writeCacheMaxSizeMb": 16,
            "dbStorage_readAheadCacheMaxSizeMb": 16,
            "dbStorage_rocksDB_blockCacheSize": 8 << 20,
            "zkTimeout": 4000,
            **(conf or {}),
        }
        self.conf = folder / "bookie.conf"
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def start(self, *options: str) -> ApacheBookie:
        self.launch(*options)
        self.wait_ready()
        return self

    def launch(self, *options: str) -> None:
        assert self.process is None
        command = [find_java(), "-Xmx256m", "-XX:MaxDirectMemorySize=384m", *_FAST_START, *_OPENS, *_IPV4, *options]
        command += ["-cp", classpath(), "-Dlog4j.configurationFile=log4j2-server.xml"]
        command += ["org.apache.bookkeeper.server.Main", "--conf", str(self.conf)]
        self._offset = self.log_path.stat().st_size if self.log_path.exists() else 0
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def wait_ready(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_DEADLINE_S
        while not re.search(r"Started component", self.log()[self._offset :]):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the original's bookie did not become ready:\n{self.log()}")
            time.sleep(0.05)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self, seconds: float = 60) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(seconds)
        self.process = None

    def log(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""


class ApacheAutoRecovery:
    """The original's auditor and replication worker, in a process of their own; killed at the end of the block."""

    def __init__(self, folder: Path, metadata_uri: str, *, conf: dict[str, object] | None = None) -> None:
        self.log_path = folder / "autorecovery.log"
        self.conf = folder / "autorecovery.conf"
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "bookiePort": free_port(),
            "advertisedAddress": "127.0.0.1",
            "allowLoopback": "true",
            "metadataServiceUri": metadata_uri,
            "zkTimeout": 4000,
            "lostBookieRecoveryDelay": 0,
            "openLedgerRereplicationGracePeriod": 500,
            "rwRereplicateBackoffMs": 200,
            **(conf or {}),
        }
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def __enter__(self) -> ApacheAutoRecovery:
        command = [find_java(), "-Xmx256m", "-XX:MaxDirectMemorySize=256m", *_FAST_START, *_OPENS]
        command += ["-cp", classpath(), "-Dlog4j.configurationFile=log4j2-server.xml"]
        command += ["org.apache.bookkeeper.replication.AutoRecoveryMain", "--conf", str(self.conf)]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def log(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""

"""`quire bookie` as a process of its own, to be killed and started again on the same folders and port."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from struct import pack, unpack

from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Digest, DigestType, master_key
from tests.support.server import free_port

START_DEADLINE_S = 60.0
PASSWORD = b"secret"
KEY = master_key(PASSWORD)
DIGEST = Digest(DigestType.CRC32C, PASSWORD)


class BookieProcess:
    """One bookie's folders, configuration and port; one process at a time."""

    def __init__(self, folder: Path, metadata_uri: str, **settings: object) -> None:
        self.folder = folder
        self.port = free_port()
        self.id = f"127.0.0.1:{self.port}"
        self.log_path = folder / "bookie.log"
        self.conf = folder / "bk_server.conf"
        self.settings: dict[str, object] = {
            "bookiePort": self.port,
            "advertisedAddress": "127.0.0.1",
            "metadataServiceUri": metadata_uri,
            "journalDirectories": folder / "journal",
            "ledgerDirectories": folder / "ledgers",
            "journalPreAllocSizeMB": 1,
            "zkTimeout": 4000,
            **settings,
        }
        self.process: subprocess.Popen[bytes] | None = None
        self._wires: list[Wire] = []
        folder.mkdir(parents=True, exist_ok=True)

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start it, and do not wait."""
        assert self.process is None
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        command = [sys.executable, "-m", "quire.cli.main", "bookie", "--conf", str(self.conf)]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder)
        return self.process

    def start(self) -> BookieProcess:
        """Start it and wait until it is ready; fails with its log if it is not."""
        offset = self.log_path.stat().st_size if self.log_path.exists() else 0
        process = self.spawn()
        deadline = time.monotonic() + START_DEADLINE_S
        while f"ready bookie={self.settings.get('bookieId', self.id)} " not in self.log()[offset:]:
            assert process.poll() is None, f"the bookie ended with {process.returncode}:\n{self.log()[offset:]}"
            assert time.monotonic() < deadline, f"the bookie is not ready:\n{self.log()[offset:]}"
            time.sleep(0.02)
        return self

    def refused(self) -> tuple[int, str]:
        """Start it, wait until it has ended by itself: its exit code, and what it said."""
        offset = self.log_path.stat().st_size if self.log_path.exists() else 0
        code = self.spawn().wait(START_DEADLINE_S)
        self._gone()
        return code, self.log()[offset:]

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(START_DEADLINE_S)
        self._gone()
        return code

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._gone()

    def log(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""

    def wait_ended(self) -> int:
        """Wait until it has ended by itself; the exit code."""
        assert self.process is not None
        code = self.process.wait(START_DEADLINE_S)
        self._gone()
        return code

    def pause(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGCONT)

    def connect(self) -> Wire:
        """A client of it; closed when the process goes."""
        wire = Wire(self.port)
        self._wires.append(wire)
        return wire

    def _gone(self) -> None:
        self.process = None
        while self._wires:
            self._wires.pop().close()


class Wire:
    """A blocking client of version 2, one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                raise ConnectionError("the bookie closed the connection")
            data += chunk
        return data

    def ask(self, frame: bytes) -> bytes:
        """Send a frame; the body of the answer."""
        self._socket.sendall(frame)
        return self._exactly(unpack("!i", self._exactly(4))[0])

    def add(self, ledger_id: int, entry_id: int, *, flags: int = 0) -> int:
        sealed = entry(ledger_id, entry_id)
        answer = self.ask(v2.add_head(len(sealed), KEY, flags) + sealed)
        rc: int = unpack("!i", answer[4:8])[0]
        return rc

    def read(self, ledger_id: int, entry_id: int, *, fence: bool = False) -> tuple[int, bytes]:
        answer = self.ask(v2.read_request(ledger_id, entry_id, v2.DO_FENCING if fence else 0, KEY if fence else None))
        return unpack("!i", answer[4:8])[0], answer[24:]


def entry(ledger_id: int, entry_id: int) -> bytes:
    """A whole entry, sealed."""
    payload = pack("!qq", ledger_id, entry_id) * 4
    return DIGEST.seal(ledger_id, entry_id, entry_id - 1, len(payload), payload) + payload

"""`quire bookie` as a process that can be killed and started again on the same folders and port."""

from __future__ import annotations

import re
import shutil
import socket
from pathlib import Path
from struct import pack, unpack

from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Digest, DigestType, master_key
from tests.support.process import ServerProcess
from tests.support.server import free_port

PASSWORD = b"secret"
KEY = master_key(PASSWORD)
DIGEST = Digest(DigestType.CRC32C, PASSWORD)


class BookieProcess(ServerProcess):
    """One bookie's folders, configuration and port. `id` is its `bookieId` if that is given, else 127.0.0.1:port."""

    def __init__(self, folder: Path, metadata_uri: str, **settings: object) -> None:
        self.port = free_port()
        self.id = str(settings.get("bookieId", f"127.0.0.1:{self.port}"))
        self._wires: list[Wire] = []
        given = {
            "bookiePort": self.port,
            "advertisedAddress": "127.0.0.1",
            "metadataServiceUri": metadata_uri,
            "journalDirectories": folder / "journal",
            "ledgerDirectories": folder / "ledgers",
            "journalPreAllocSizeMB": 1,
            "zkTimeout": 4000,
            **settings,
        }
        super().__init__("bookie", folder, given)

    def ready_line(self) -> str:
        return f"ready bookie={re.escape(self.id)} "

    def connect(self) -> Wire:
        """Return a client of the bookie; it is closed when the process ends."""
        wire = Wire(self.port)
        self._wires.append(wire)
        return wire

    def lose_for_good(self) -> None:
        """Kill the bookie and empty its disks."""
        self.kill()
        for folder in ("journal", "ledgers"):
            shutil.rmtree(self.folder / folder)

    def gone(self) -> None:
        super().gone()
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
    """Return a whole sealed entry."""
    payload = pack("!qq", ledger_id, entry_id) * 4
    return DIGEST.seal(ledger_id, entry_id, entry_id - 1, len(payload), payload) + payload

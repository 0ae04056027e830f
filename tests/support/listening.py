"""Listening sockets of processes, and what they answer to a client without TLS."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterable
from pathlib import Path

from quire.wire.bookkeeper import v3
from quire.wire.bookkeeper.v2 import Rc
from quire.wire.pulsar import PulsarApi_pb2 as pb

LISTEN = "0A"
ANSWER_S = 5.0
ALERT = b"\x15\x03"
"""Begin of TLS's own refusal, which is no answer."""


def listening_ports(pids: Iterable[int]) -> dict[int, int]:
    """Return the ports on which processes listen, each with the process."""
    owners: dict[str, int] = {}
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(descriptor)
            except FileNotFoundError:  # closed as we looked
                continue
            if target.startswith("socket:["):
                owners[target[8:-1]] = pid
    found: dict[int, int] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:] if Path(table).exists() else ():
            fields = line.split()
            if fields[3] == LISTEN and fields[9] in owners:
                found[int(fields[1].rpartition(":")[2], 16)] = owners[fields[9]]
    return found


def _connect() -> bytes:
    command = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
    command.connect.client_version = "plain"
    command.connect.protocol_version = 20
    body = command.SerializeToString()
    return (len(body) + 4).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body


QUESTIONS = {
    "Pulsar": _connect(),
    "HTTP": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    # (Some bytes more: TLS waits for a whole header.)
    "ZooKeeper's command": b"srvr" + b"\n" * 16,
    "ZooKeeper's session": (44).to_bytes(4, "big") + bytes(8 + 8) + (4000).to_bytes(4, "big") + bytes(24),
    "a bookie": v3.read_lac_request(1, 7),
}
"""First bytes of clients without TLS; any of them has an answer from a server of its kind that listens without."""


def answers_in_plain(port: int) -> dict[str, bytes]:
    """Return what a port answers to clients without TLS, by their protocols. A refusal of TLS's is no answer."""
    found = {}
    for name, question in QUESTIONS.items():
        with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S) as peer:
            try:
                peer.sendall(question)
                answer = peer.recv(4096)
            except TimeoutError:
                answer = b""
            except ConnectionError:
                answer = b""
        if answer and not answer.startswith(ALERT):
            found[name] = answer
    return found


def certificate_of(port: int, context: ssl.SSLContext, *, start_tls: bool = False) -> bytes:
    """Return the certificate that a port presents, in DER, after a handshake. OSError, ssl.SSLError.

    `start_tls`: the port is of a bookie, which has to be asked for TLS first."""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S) as raw:
        if start_tls:
            raw.sendall(v3.start_tls_request(1))
            size = int.from_bytes(_exactly(raw, 4), "big")
            [answer] = v3.decode_responses(size.to_bytes(4, "big") + _exactly(raw, size))
            outcome = getattr(answer, "outcome", answer)
            assert getattr(outcome, "rc", None) == Rc.OK, answer
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as secure:
            found = secure.getpeercert(binary_form=True)
            assert found is not None
            return found


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = peer.recv(size - len(data))
        assert piece, "the server closed the connection"
        data += piece
    return data

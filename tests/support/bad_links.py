"""TCP links between processes that can be cut in either direction, reset, and that change bytes: `proxy.py` without an
event loop, for tests whose clients block.

The loopback has many addresses: a server on 127.0.0.1 may announce itself at 127.0.0.2, where the link listens on the
same port.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FAR = "127.0.0.2"
"""Address under which servers behind a link are announced."""
CHUNK_BYTES = 65536


class BadLink:
    """A link from `port` on `host` to the same port on 127.0.0.1. All methods may be called from any thread."""

    def __init__(self, port: int, host: str = FAR) -> None:
        self.requests = threading.Event()
        """While set, data from clients is forwarded. Otherwise it waits, and the windows fill."""
        self.answers = threading.Event()
        self.change: Callable[[bytes], bytes] = lambda data: data
        """Change that is applied to the clients' bytes."""
        self.passed = 0
        """Bytes from clients that have been forwarded."""
        self._port = port
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = False
        self.heal()
        self._listener = socket.create_server((host, port), backlog=64)
        self._acceptor = threading.Thread(target=self._serve, daemon=True)
        self._pumps: list[threading.Thread] = []
        self._acceptor.start()

    def cut(self, *, requests: bool = True, answers: bool = True) -> None:
        if requests:
            self.requests.clear()
        if answers:
            self.answers.clear()

    def heal(self) -> None:
        self.requests.set()
        self.answers.set()

    def reset(self) -> None:
        """End every connection; data in transit is lost."""
        with self._lock:
            for each in self._sockets:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                _shut(each)
            self._sockets.clear()

    def close(self) -> None:
        self._closed = True
        self.heal()
        _shut(self._listener)
        self._listener.close()
        self._acceptor.join()  # after it there is no new connection to be reset
        self.reset()
        for thread in self._pumps:
            thread.join()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            try:
                server = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._sockets |= {client, server}
            ways = [(client, server, self.requests), (server, client, self.answers)]
            for way in ways:
                self._pumps.append(threading.Thread(target=self._pump, args=way, daemon=True))
                self._pumps[-1].start()

    def _pump(self, source: socket.socket, sink: socket.socket, gate: threading.Event) -> None:
        try:
            while data := source.recv(CHUNK_BYTES):
                gate.wait()
                if self._closed:
                    break
                if gate is self.requests:
                    data = self.change(data)
                    self.passed += len(data)
                sink.sendall(data)
        except OSError:
            pass  # the end of one is the end of both
        with self._lock:
            self._sockets -= {source, sink}
        for each in (source, sink):
            _shut(each)
        source.close()  # each thread its own


def _shut(each: socket.socket) -> None:
    try:
        each.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it is not connected any more


@contextmanager
def bad_links(*ports: int) -> Iterator[list[BadLink]]:
    made = [BadLink(port) for port in ports]
    try:
        yield made
    finally:
        for each in made:
            each.close()

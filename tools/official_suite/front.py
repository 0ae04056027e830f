"""The web port of the cluster: passes requests on to a broker, and follows its redirects.

A broker answers a request about a topic of another broker with 307 and the owner's address. The suite sends its
requests by urllib, which follows that for GET, but not for PUT and POST. Clusters of Pulsar have a proxy in front of
their brokers for such clients. Source: Pulsar's AdminProxyHandler, which follows 307 and sends the body again.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urljoin, urlsplit

REDIRECTS_MAX = 5
ANSWER_S = 60.0
_BETWEEN_TWO = frozenset(("connection", "content-length", "host", "keep-alive", "transfer-encoding"))
"""Headers of one connection, which are not passed on."""


@contextmanager
def front(port: int, broker: str) -> Iterator[int]:
    """Serve at a port of 127.0.0.1 (0: any) for the broker at this web URL; yield the port."""
    server = _Front(("127.0.0.1", port), broker)
    thread = threading.Thread(target=server.serve_forever, name="front", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Front(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], broker: str) -> None:
        self.broker = broker
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Front

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urljoin(self.server.broker, self.path)
        try:
            for _ in range(REDIRECTS_MAX + 1):
                status, headers, text = self._request(url, body)
                location = headers.get("Location")
                if status != http.HTTPStatus.TEMPORARY_REDIRECT or location is None:
                    self._answer(status, headers, text)
                    return
                url = urljoin(url, location)
        except (OSError, http.client.HTTPException) as error:
            self.send_error(http.HTTPStatus.BAD_GATEWAY, f"{url}: {error}")
            return
        self.send_error(http.HTTPStatus.BAD_GATEWAY, f"{url}: more than {REDIRECTS_MAX} redirects")

    do_GET = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815 (names of http.server)

    def _request(self, url: str, body: bytes) -> tuple[int, http.client.HTTPMessage, bytes]:
        parts = urlsplit(url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _BETWEEN_TWO}
        with closing(http.client.HTTPConnection(parts.netloc, timeout=ANSWER_S)) as connection:
            connection.request(self.command, path, body or None, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def _answer(self, status: int, headers: http.client.HTTPMessage, text: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in _BETWEEN_TWO:
                self.send_header(name, value)
        if status != http.HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Write no line for each request."""

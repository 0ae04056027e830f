"""HTTP/1.1 over one connection to each server, by the standard library.

A command makes a few requests and ends. Importing a general client (httpx2, and with it trio, h2 and attrs) costs more
than half of the CPU time of such a command, and nothing of what it has more is needed here: no redirects are followed,
no proxy of the environment is used (nor is one by pulsar-admin), and no answer is compressed.
"""

from __future__ import annotations

import base64
import http.client
import select
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol
from urllib.parse import quote, unquote, urlsplit

IDLE_MAX_S: Final = 5.0
"""Seconds without a request after which a connection is not used again: servers close idle ones."""
_PLAIN: Final = "%/:=&?~+!$,;'@()*[]"
"""Characters that are sent as they are. What is escaped already stays so."""


class ExchangeError(Exception):
    """The server was not reached, or its answer is not HTTP. Whether the request had an effect is unknown."""


@dataclass(frozen=True, slots=True)
class AdminAnswer:
    """Answer of a server. Names of headers are in lower case; the values of one that is repeated are joined."""

    status: int
    reason: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


class Exchange(Protocol):
    """Anything that carries a request to a server."""

    def request(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> AdminAnswer:
        """Return the answer, also one that is a refusal or a redirect. Raises ExchangeError."""

    def close(self) -> None:
        """Close all connections."""


class HttpExchange:
    """Requests over the network. Each wait for the server (connect, send, receive) ends after `timeout_s`."""

    def __init__(self, timeout_s: float, context: ssl.SSLContext | None) -> None:
        """`context`: how servers of https URLs are verified; None if there are none."""
        self._timeout_s = timeout_s
        self._context = context
        self._open: dict[str, _Connection] = {}

    def request(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> AdminAnswer:
        try:
            parts = urlsplit(url)
            query = f"?{quote(parts.query, safe=_PLAIN)}" if parts.query else ""
            target = quote(parts.path or "/", safe=_PLAIN) + query
            connection = self._connection(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}")
            try:
                connection.send(method, target, body, {**headers, **_user(parts.username, parts.password)})
                with connection.http.getresponse() as response:
                    found = AdminAnswer(response.status, response.reason, _headers(response), response.read())
            except BaseException:
                connection.http.close()
                raise
        except (http.client.HTTPException, OSError, ValueError) as error:
            raise ExchangeError(str(error) or type(error).__name__) from error
        connection.used_s = time.monotonic()
        return found

    def _connection(self, origin: str) -> _Connection:
        found = self._open.get(origin)
        if found is None or not found.serves():
            if found is not None:
                found.http.close()
            found = self._open[origin] = _Connection(self._made(origin))
        return found

    def _made(self, origin: str) -> http.client.HTTPConnection:
        parts = urlsplit(origin)
        if not parts.hostname:
            raise ValueError(f"{origin} has no host")
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=self._timeout_s)
        return http.client.HTTPSConnection(
            parts.hostname, parts.port or 443, timeout=self._timeout_s, context=self._context
        )

    def close(self) -> None:
        for each in self._open.values():
            each.http.close()
        self._open.clear()


@dataclass(slots=True)
class _Connection:
    http: http.client.HTTPConnection
    used_s: float = field(default_factory=time.monotonic)

    def send(self, method: str, target: str, body: bytes | None, headers: dict[str, str]) -> None:
        try:
            self.http.request(method, target, body, headers)
        except (BrokenPipeError, ConnectionResetError):
            if self.http.sock is None:
                raise  # (not connected)
            # A server that refuses a body while it comes answers first, and then closes the connection.

    def serves(self) -> bool:
        """Return whether another request can be sent: the server has not closed the connection."""
        if self.http.sock is None or time.monotonic() - self.used_s > IDLE_MAX_S:
            return False
        poll = select.poll()
        poll.register(self.http.sock, select.POLLIN)
        return not poll.poll(0)  # (an idle connection has nothing to read but its end)


def _user(user: str | None, password: str | None) -> dict[str, str]:
    """Return the credentials that a URL has."""
    if user is None and password is None:
        return {}
    pair = f"{unquote(user or '')}:{unquote(password or '')}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in response.getheaders():
        key, text = name.lower(), _text(value)
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def _text(value: str) -> str:
    """Return the text of a header: http.client reads its bytes as Latin-1, and brokers send UTF-8."""
    try:
        return value.encode("latin-1").decode()
    except ValueError:
        return value

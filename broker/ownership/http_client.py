"""HTTP/1.1 requests to another broker: one connection for each, no redirects followed, answers read whole."""

from __future__ import annotations

import json
from contextlib import aclosing
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from quire.world.doors import Network

if TYPE_CHECKING:
    from quire.world.tls_sides import ClientTls

ANSWER_BYTES_MAX = 16 << 20


class RequestHeaders(Protocol):
    """Credentials of a request."""

    async def headers(self) -> dict[str, str]:
        """Return the headers with them. Raises OSError if they cannot be read."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Answer of a server, whatever its status."""

    status: int
    location: str
    """Target of a redirect; empty if there is none."""
    body: bytes

    def json(self) -> Any:
        """Return the decoded body; None if there is none, or it is not JSON."""
        try:
            return json.loads(self.body) if self.body else None
        except ValueError:
            return None


def load() -> None:
    """Import the HTTP client, which otherwise happens at the first request: 0.1 s of CPU, which a start should not wait
    for."""
    import_module("quire.service.http_network")


async def request(
    network: Network,
    method: str,
    url: str,
    body: object = None,
    *,
    own: RequestHeaders | None = None,
    tls: ClientTls | None = None,
) -> HttpAnswer:
    """Send a request, with `body` as JSON, and read the answer. The caller sets the deadline. `tls` is for https.

    Args:
        own: credentials, as a rule this broker's; None: it has none.

    Raises:
        OSError: there is no answer, it is no HTTP, it is longer than ANSWER_BYTES_MAX, `url` is neither an http URL
            nor, with `tls`, an https URL, or the credentials cannot be read.
    """
    check_url(url, tls=tls is not None)
    # (See `load`.)
    import httpx2

    from quire.service.http_network import client

    data = b"" if body is None else json.dumps(body).encode()
    headers = {
        "Content-Type": "application/json",
        "Content-Length": str(len(data)),
        "Accept-Encoding": "identity",
        "Connection": "close",
        **({} if own is None else await own.headers()),
    }
    try:
        async with (
            client(network, tls) as http,
            http.stream(method, url, content=data, headers=headers) as response,
            aclosing(response.aiter_raw()) as parts,
        ):
            received = bytearray()
            async for part in parts:
                received += part
                if len(received) > ANSWER_BYTES_MAX:
                    raise OSError(f"{url}: its answer is too long")
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise OSError(f"{url}: {error}") from error
    return HttpAnswer(response.status_code, response.headers.get("Location", ""), bytes(received))


def check_url(url: str, *, tls: bool = False) -> None:
    """Check what httpx2 takes without a word: a port that is no port, an address that is not closed.

    Raises:
        OSError: no server can be at `url`, or it would have to be asked in another way than by HTTP, or
            with TLS without `tls`.
    """
    try:
        parts = urlsplit(url)
        host, scheme, _ = parts.hostname, parts.scheme, parts.port
    except ValueError as error:
        raise OSError(f"{url} is not a URL") from error
    if not host:
        raise OSError(f"{url} names no server")
    if scheme == "https" and not tls:
        raise OSError(f"{url} needs brokerClientTlsEnabled=true")
    if scheme not in ("http", "https"):
        raise OSError(f"{url}: {scheme or 'no scheme'} is not supported, only http and https are")

"""The HTTP client's way to the network: `world.network`, so that the simulator carries its requests too.

Import this module after the binary port is served, or in a function that is called later: httpx2 and httpcore2 take
about 0.1 s of CPU.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any

import httpcore2
import httpx2
import trio

from quire.world.doors import Network, Stream
from quire.world.streams import send_all

if TYPE_CHECKING:
    from quire.world.tls_sides import ClientTls

CHUNK_BYTES = 64 << 10
"""Most bytes of one read."""


def client(network: Network, tls: ClientTls | None = None) -> httpx2.AsyncClient:
    """Return a client for HTTP/1.1, with https if there is `tls`: one connection for each request, no redirects, no
    proxies, no timeouts of its own.

    The caller sets the deadline with a cancel scope. Requests raise httpx2.HTTPError and httpx2.InvalidURL.
    """
    return httpx2.AsyncClient(
        transport=NetworkTransport(network, tls), timeout=None, trust_env=False, follow_redirects=False
    )


class NetworkTransport(httpx2.AsyncBaseTransport):
    """httpx2's transport over a Network."""

    def __init__(self, network: Network, tls: ClientTls | None = None) -> None:
        self._pools = {"http": _pool(NetworkBackend(network))}
        if tls is not None:
            self._pools["https"] = _pool(NetworkBackend(network, tls))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        pool = self._pools.get(url.scheme)
        if pool is None:
            known = " and ".join(self._pools)
            raise httpx2.UnsupportedProtocol(f"{url.scheme or 'no scheme'} is not supported, only {known}")
        port = url.port or (443 if url.scheme == "https" else 80)
        asked = httpcore2.Request(
            method=request.method,
            # (The connections of the pool have TLS, or do without: httpcore2 adds none.)
            url=httpcore2.URL(scheme=b"http", host=url.raw_host, port=port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
        )
        with _as_transport_errors():
            answer = await pool.handle_async_request(asked)
        return httpx2.Response(answer.status, headers=answer.headers, stream=_Body(answer))

    async def aclose(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()


def _pool(backend: httpcore2.AsyncNetworkBackend) -> httpcore2.AsyncConnectionPool:
    return httpcore2.AsyncConnectionPool(max_keepalive_connections=0, network_backend=backend, http2=False)


class _Body(httpx2.AsyncByteStream):
    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _as_transport_errors():
            async with aclosing(self._answer.aiter_stream()) as parts:
                async for part in parts:
                    yield part

    async def aclose(self) -> None:
        await self._answer.aclose()


@contextmanager
def _as_transport_errors() -> Iterator[None]:
    try:
        yield
    except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.UnsupportedProtocol) as error:
        raise httpx2.TransportError(str(error) or type(error).__name__) from error


class NetworkBackend(httpcore2.AsyncNetworkBackend):
    """httpcore2's connections, made by a Network. There are no timeouts here: callers use cancel scopes."""

    def __init__(self, network: Network, tls: ClientTls | None = None) -> None:
        self._network = network
        self._tls = tls

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            if self._tls is not None:
                return NetworkStream(await self._tls.connect(self._network, host, port))
            return NetworkStream(await self._network.connect(host, port))
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)


class NetworkStream(httpcore2.AsyncNetworkStream):
    """One connection of a Network as httpcore2 wants it."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._buffer = memoryview(bytearray(CHUNK_BYTES))

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            size = await self._stream.receive_into(self._buffer[:max_bytes])
        except OSError as error:
            raise httpcore2.ReadError(str(error)) from error
        return bytes(self._buffer[:size])

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            await send_all(self._stream, buffer)
        except OSError as error:
            raise httpcore2.WriteError(str(error)) from error

    async def aclose(self) -> None:
        self._stream.close()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        raise httpcore2.ConnectError("a connection with TLS has it from its begin")

    def get_extra_info(self, info: str) -> Any:
        return None

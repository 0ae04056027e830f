"""The HTTP client's way to the network: `world.network`, so that the simulator carries its requests too.

Import this module after the binary port is served, or in a function that is called later: httpx2 and httpcore2 take
about 0.1 s of CPU.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

import httpcore2
import httpx2
import trio

from quire.world.doors import Network, Stream
from quire.world.streams import send_all

CHUNK_BYTES = 64 << 10
"""Most bytes of one read."""


def client(network: Network) -> httpx2.AsyncClient:
    """Return a client for plain HTTP/1.1: one connection for each request, no redirects, no proxies, no timeouts of its
    own.

    The caller sets the deadline with a cancel scope. Requests raise httpx2.HTTPError and httpx2.InvalidURL.
    """
    return httpx2.AsyncClient(
        transport=NetworkTransport(network), timeout=None, trust_env=False, follow_redirects=False
    )


class NetworkTransport(httpx2.AsyncBaseTransport):
    """httpx2's transport over a Network."""

    def __init__(self, network: Network) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            max_keepalive_connections=0, network_backend=NetworkBackend(network), http2=False
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        if url.scheme != "http":
            raise httpx2.UnsupportedProtocol(f"{url.scheme or 'no scheme'} is not supported, only http is")
        asked = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
        )
        with _as_transport_errors():
            answer = await self._pool.handle_async_request(asked)
        return httpx2.Response(answer.status, headers=answer.headers, stream=_Body(answer))

    async def aclose(self) -> None:
        await self._pool.aclose()


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

    def __init__(self, network: Network) -> None:
        self._network = network

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
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
        raise httpcore2.ConnectError("TLS is not supported between brokers")

    def get_extra_info(self, info: str) -> Any:
        return None

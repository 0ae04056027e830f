"""Connections of a web port with TLS, with the interface that hypercorn expects of trio.SSLStream.

Requests have the verified certificate of their client in DER, or None, in their scope under PEER_CERTIFICATE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
from hypercorn.trio.worker_context import WorkerContext
from starlette.types import ASGIApp, Receive, Scope, Send

from quire.service.log import get_logger
from quire.world.doors import Listener, Stream
from quire.world.real_network import RealStream
from quire.world.streams import send_all
from quire.world.tls_sides import HANDSHAKE_TIMEOUT_S, ServerTls

if TYPE_CHECKING:
    import socket  # noqa: TID251 - for the type

PEER_CERTIFICATE: Final = "quire.peer_certificate"
CHUNK_BYTES: Final = 16 << 10
"""Most bytes of one receive."""

log = get_logger(__name__)


class TlsListener:
    """One address of a web port with TLS."""

    def __init__(self, listener: Listener, tls: ServerTls, *, send_s: float) -> None:
        """`send_s`: time for a client to take a part of an answer."""
        self._listener = listener
        self._tls = tls
        self._send_s = send_s

    @property
    def address(self) -> tuple[str, int]:
        return self._listener.address

    @property
    def capacity(self) -> int:
        return 0

    async def accept(self) -> TlsConnection:
        raw = await self._listener.accept()
        assert isinstance(raw, RealStream), "the web ports are in the real world only"
        return TlsConnection(raw, self._tls, self._send_s)

    def close(self) -> None:
        self._listener.close()


class TlsConnection:
    """One connection. One that is closed by its peer does not wait for another request."""

    is_tls = True

    def __init__(self, raw: RealStream, tls: ServerTls, send_s: float) -> None:
        self.context = WorkerContext(None)
        self.peer = raw.peer
        self._raw = raw
        self._tls = tls
        self._send_s = send_s
        self._stream: Stream | None = None
        self._buffer = memoryview(bytearray(CHUNK_BYTES))

    @property
    def transport_stream(self) -> TlsConnection:
        """Return the object that has the socket: this one."""
        return self

    @property
    def socket(self) -> socket.socket:
        return self._raw.socket

    def app(self, app: ASGIApp) -> ASGIApp:
        """Return `app` for the requests of this connection."""

        async def with_certificate(scope: Scope, receive: Receive, send: Send) -> None:
            scope[PEER_CERTIFICATE] = None if self._stream is None else self._stream.peer_certificate
            await app(scope, receive, send)

        return with_certificate

    async def do_handshake(self) -> None:
        try:
            with trio.fail_after(HANDSHAKE_TIMEOUT_S):
                self._stream = await self._tls.secure(self._raw)
        except (OSError, trio.TooSlowError) as error:
            reason = str(error) or f"no handshake within {HANDSHAKE_TIMEOUT_S:g} s"
            log.info("tls handshake failed", server="https", connection=self.peer, reason=reason)
            raise trio.BrokenResourceError(reason) from error

    def selected_alpn_protocol(self) -> str:
        return "http/1.1"

    async def receive_some(self, max_bytes: int) -> bytes:
        assert self._stream is not None, "the handshake comes first"
        try:
            size = await self._stream.receive_into(self._buffer[:max_bytes])
        except OSError as error:
            await self.context.terminated.set()
            raise trio.BrokenResourceError(str(error)) from error
        if not size:
            await self.context.terminated.set()
        return bytes(self._buffer[:size])

    async def send_all(self, data: bytes) -> None:
        """Send a part of an answer. A client that does not take it in time is disconnected."""
        assert self._stream is not None, "the handshake comes first"
        try:
            with trio.fail_after(self._send_s):
                await send_all(self._stream, data)
        except (OSError, trio.TooSlowError) as error:
            raise trio.BrokenResourceError(str(error) or "the client does not take the answer") from error

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        (self._stream or self._raw).close()

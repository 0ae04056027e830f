"""The two sides of TLS connections: a server's and a client's, with files that are looked at again from time to time.

Files are looked at when a connection is made and the last look was `refresh_s` ago, in a job of `Offload`. Changed ones
give a new context, for this and later connections; existing connections stay as they are. Files that cannot be used
change nothing, and are reported once.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Protocol

import trio

from quire.world.doors import Buffer, Network, Stream
from quire.world.tls import Scratch, TlsStream

HANDSHAKE_TIMEOUT_S = 10.0
"""Time for a handshake of a server, in seconds."""


class Files(Protocol):
    """Files of certificates and keys; see `quire.world.real_tls.TlsFiles`."""

    @property
    def context(self) -> ssl.SSLContext: ...

    @property
    def expires_at_s(self) -> float: ...

    def refresh(self) -> bool:
        """Read the files again; return whether they changed. Blocking. OSError, ValueError: nothing has changed."""


class Workers(Protocol):
    """The part of `quire.world.doors.Offload` that is used here."""

    async def run(self, job: Callable[[], bool], *, name: str = "") -> bool: ...


def ignore(report: str) -> None:
    """Default for reports: does nothing."""


class TlsSide:
    """One side of TLS connections."""

    def __init__(
        self,
        files: Files,
        offload: Workers,
        *,
        refresh_s: float = 0.0,
        on_reload: Callable[[], object] = bool,
        on_broken: Callable[[str], None] = ignore,
    ) -> None:
        """Take the files.

        Args:
            files: of this side.
            offload: for looking at the files.
            refresh_s: time between two looks; 0: one for each connection.
            on_reload: called when changed files were taken. It must not raise.
            on_broken: called with the reason when changed files cannot be used. It must not raise.
        """
        self._files = files
        self._offload = offload
        self._refresh_s = refresh_s
        self._on_reload = on_reload
        self._on_broken = on_broken
        self._looked_at = trio.current_time()
        self._looking = trio.Lock()
        self._reported = ""
        self._scratch = Scratch()

    @property
    def expires_at_s(self) -> float:
        """Return when the own certificate expires, in seconds since 1970; 0: there is none."""
        return self._files.expires_at_s

    async def _context(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        if trio.current_time() >= self._looked_at + self._refresh_s:
            async with self._looking:
                if trio.current_time() >= self._looked_at + self._refresh_s:
                    await self._look()
        return self._files.context

    async def _look(self) -> None:
        try:
            if await self._offload.run(self._files.refresh, name="tls files"):
                self._on_reload()
            self._reported = ""
        except (OSError, ValueError) as error:
            if str(error) != self._reported:
                self._reported = str(error)
                self._on_broken(self._reported)
        self._looked_at = trio.current_time()


class ServerTls(TlsSide):
    """Server's side: one certificate for all connections."""

    async def secure(self, raw: Stream, received: Buffer = b"") -> TlsStream:
        """Return `raw` with TLS, after the handshake; `received` are bytes received from it before.

        The caller sets the deadline, and closes `raw` after an error. OSError.
        """
        stream = TlsStream(raw, await self._context(), self._scratch, server_side=True, received=received)
        await stream.handshake()
        return stream


class ClientTls(TlsSide):
    """Client's side."""

    async def secure(self, raw: Stream, host: str) -> TlsStream:
        """Return `raw` with TLS, after the handshake with the server that is known as `host`.

        The caller sets the deadline. After an error `raw` is closed. OSError.
        """
        try:
            stream = TlsStream(raw, await self._context(), self._scratch, server_side=False, host=host)
            await stream.handshake()
        except BaseException:
            raw.close()
            raise
        return stream

    async def connect(self, network: Network, host: str, port: int) -> TlsStream:
        """Connect with TLS. OSError. The caller sets the deadline."""
        return await self.secure(await network.connect(host, port), host)

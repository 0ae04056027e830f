"""TLS of a server process: sides made of its configuration, and connections that begin with a handshake."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio

from quire.service.errors import ConfigError
from quire.service.log import get_logger
from quire.service.neighbours.rare_lines import RareLines
from quire.world.doors import Stream, World
from quire.world.real_tls import TlsFiles
from quire.world.tls_options import TlsOptions
from quire.world.tls_sides import HANDSHAKE_TIMEOUT_S, ClientTls, ServerTls

log = get_logger(__name__)

HTTP_PROTOCOLS = ("http/1.1",)
"""Names of ALPN that the web ports accept."""


async def open_server_tls(
    world: World, options: TlsOptions, *, name: str, refresh_s: float, protocols: Sequence[str] = ()
) -> ServerTls:
    """Return the server's side for the port `name`. ConfigError: the files cannot be used."""
    files = await _read(world, options, name, server_side=True, protocols=protocols)
    return ServerTls(
        files,
        world.offload,
        refresh_s=refresh_s,
        on_reload=partial(log.info, "tls files changed, used for new connections", server=name),
        on_broken=partial(_broken, name),
    )


async def open_client_tls(world: World, options: TlsOptions, *, name: str, refresh_s: float) -> ClientTls:
    """Return the client's side for connections to `name`. ConfigError: the files cannot be used."""
    files = await _read(world, options, name, server_side=False)
    return ClientTls(
        files,
        world.offload,
        refresh_s=refresh_s,
        on_reload=partial(log.info, "tls files changed, used for new connections", server=name),
        on_broken=partial(_broken, name),
    )


async def _read(
    world: World, options: TlsOptions, name: str, *, server_side: bool, protocols: Sequence[str] = ()
) -> TlsFiles:
    make = partial(TlsFiles, options, server_side=server_side, protocols=protocols)
    try:
        return await world.offload.run(make, name="tls files")
    except (OSError, ValueError) as error:
        raise ConfigError(f"TLS of {name}: {error}") from error


def _broken(name: str, reason: str) -> None:
    log.warning("tls files cannot be used, the previous ones stay", server=name, reason=reason)


def secured(
    tls: ServerTls,
    handle: Callable[[Stream], Awaitable[None]],
    *,
    name: str,
    timeout_s: float = HANDSHAKE_TIMEOUT_S,
) -> Callable[[Stream], Awaitable[None]]:
    """Return a handler of raw connections that passes them on with TLS, or ends them if there is no handshake."""

    rare_lines = RareLines()

    async def serve(raw: Stream) -> None:
        try:
            with trio.fail_after(timeout_s):
                stream = await tls.secure(raw)
        except (OSError, trio.TooSlowError) as error:
            reason = str(error) or f"no handshake within {timeout_s:g} s"
            if rare_lines.admits("tls handshake failed", raw.peer):
                log.info("tls handshake failed", server=name, connection=raw.peer, reason=reason)
            return
        try:
            await handle(stream)
        finally:
            stream.close()

    return serve

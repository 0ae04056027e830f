"""The ports of the binary protocol of a process with a broker in it: one without TLS, one with it, or both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import trio

from broker.server import Broker
from quire.servers.addresses import naming
from quire.servers.broker.listening import ListenConfig
from quire.servers.broker.tls_keys import ServerTlsKeys
from quire.service.serve import ConnectionCounts, serve_connections
from quire.world.doors import Listener, Stream, World

if TYPE_CHECKING:
    from quire.world.tls_sides import ServerTls


@dataclass(frozen=True, slots=True)
class Ports:
    """Listeners of a broker's ports, and the TLS of those that have it. None for ports that are not configured."""

    plain: Listener | None
    tls: Listener | None
    secure: ServerTls | None
    secure_web: ServerTls | None

    def certificates(self) -> dict[str, ServerTls | None]:
        """Return the sides of TLS by the keys of their ports."""
        return {"brokerServicePortTls": self.secure, "webServicePortTls": self.secure_web}

    def addresses(self, host: str) -> tuple[tuple[str, int] | None, tuple[str, int] | None]:
        """Return the addresses without TLS and with it, for clients that know this machine as `host`."""
        plain = None if self.plain is None else (host, self.plain.address[1])
        return plain, None if self.tls is None else (host, self.tls.address[1])

    async def serve(
        self, broker: Broker, counts: ConnectionCounts, config: ListenConfig, nursery: trio.Nursery, stop: trio.Event
    ) -> None:
        """Serve the clients of all ports in tasks of `nursery` until `stop` is set; then connected ones, for the time
        that the configuration gives a shutdown. Returns when the ports are served."""
        kinds: list[tuple[Listener, Callable[[Stream], Awaitable[None]], Callable[[Stream], None] | None, str]] = []
        if self.plain is not None:
            kinds.append((self.plain, broker.handle, broker.refuse, "broker"))
        if self.tls is not None and self.secure is not None:
            from quire.servers.tls import secured

            name = "broker with TLS"
            # A connection above the limit gets no reason: there is no handshake for it.
            kinds.append((self.tls, secured(self.secure, broker.handle, name=name), None, name))
        for number, (listener, handle, refuse, name) in enumerate(kinds):
            serve = partial(
                serve_connections,
                listener,
                handle,
                stop=stop,
                grace_s=config.shutdown_timeout_s,
                connections_max=config.connections_max,
                connections_per_address_max=config.connections_per_address_max,
                refuse=refuse,
                on_drain=broker.begin_close if number == 0 else None,
                counts=counts,
                name=name,
            )
            await nursery.start(serve, name=name)


async def open_ports(world: World, config: ListenConfig, keys: ServerTlsKeys) -> Ports:
    """Listen on the configured ports. PortError; ConfigError: the files of TLS cannot be used."""
    secure = secure_web = None
    if config.has_tls:
        # Imported here, because other servers do not need it.
        from quire.servers.tls import HTTP_PROTOCOLS, open_server_tls

        if config.broker_port_tls is not None:
            secure = await open_server_tls(world, keys.options(), name="brokerServicePortTls", refresh_s=keys.refresh_s)
        if config.web_port_tls is not None:
            secure_web = await open_server_tls(
                world,
                keys.options(web=True),
                name="webServicePortTls",
                refresh_s=keys.refresh_s,
                protocols=HTTP_PROTOCOLS,
            )
    plain = await _listen(world, "brokerServicePort", config.bind_address, config.broker_port)
    tls = await _listen(world, "brokerServicePortTls", config.bind_address, config.broker_port_tls)
    return Ports(plain, tls, secure, secure_web)


async def _listen(world: World, key: str, host: str, port: int | None) -> Listener | None:
    if port is None:
        return None
    with naming(key, host, port):
        return await world.network.listen(host, port)

"""Keys of Pulsar's broker.conf about the two ports of a process with a broker in it, and the connections to them."""

from __future__ import annotations

from dataclasses import dataclass

from quire.servers.keys import AddressKeys
from quire.service.config import MS_IN_S, conf_key


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenConfig(AddressKeys):
    """Ports on which a broker listens, and the host by which it is known. Raises ValueError if there is no port."""

    bind_address: str = conf_key("bindAddress", "0.0.0.0", doc="Address to listen on, for all ports.")
    broker_port: int | None = conf_key(
        "brokerServicePort",
        6650,
        minimum=0,
        maximum=65535,
        doc="Port of the binary protocol without TLS. 0 takes a free one. Empty: there is none.",
    )
    broker_port_tls: int | None = conf_key(
        "brokerServicePortTls",
        None,
        minimum=0,
        maximum=65535,
        doc="Port of the binary protocol with TLS, usually 6651. 0 takes a free one. Empty: there is none.",
    )
    web_port: int | None = conf_key(
        "webServicePort",
        8080,
        minimum=0,
        maximum=65535,
        doc="Port of status, health, metrics and the admin REST without TLS. 0 takes a free one. Empty: there is none.",
    )
    web_port_tls: int | None = conf_key(
        "webServicePortTls",
        None,
        minimum=0,
        maximum=65535,
        doc="The same with TLS, usually 8443. 0 takes a free one. Empty: there is none.",
    )
    tls_enabled: bool = conf_key(
        "tlsEnabled",
        False,
        doc="Older switch. true: brokerServicePortTls or webServicePortTls must be set; they alone switch TLS on.",
    )
    connections_max: int = conf_key(
        "brokerMaxConnections",
        10_000,
        minimum=0,
        doc="Maximum number of connections; further ones are closed. 0: bounded only by the file descriptors.",
    )
    connections_per_address_max: int = conf_key(
        "brokerMaxConnectionsPerIp",
        0,
        minimum=0,
        doc="Maximum number of connections from one address; further ones are closed. Behind a proxy all clients have "
        "its address. 0: no limit.",
    )
    shutdown_timeout_s: float = conf_key(
        "brokerShutdownTimeoutMs",
        60_000,
        unit=MS_IN_S,
        minimum=0,
        doc="Maximum time for a stopping server to close its topics and to end its connections. Topics that are not "
        "closed then are recovered at their next use.",
    )

    def __post_init__(self) -> None:
        if self.broker_port is None and self.broker_port_tls is None:
            raise ValueError("brokerServicePort, brokerServicePortTls: one of them must be set")
        if self.web_port is None and self.web_port_tls is None:
            raise ValueError("webServicePort, webServicePortTls: one of them must be set")
        if self.tls_enabled and not self.has_tls:
            raise ValueError(
                "tlsEnabled=true: set brokerServicePortTls=6651 and webServicePortTls=8443, which switch TLS on"
            )

    @property
    def has_tls(self) -> bool:
        """Return whether a port has TLS."""
        return self.broker_port_tls is not None or self.web_port_tls is not None

    @property
    def advertised_host(self) -> str:
        """The host that lookups answer."""
        if self.advertised_address:
            return self.advertised_address
        return "127.0.0.1" if self.bind_address in ("0.0.0.0", "::", "") else self.bind_address

"""Keys of Pulsar's broker.conf about the two ports of a process with a broker in it, and the connections to them."""

from __future__ import annotations

from dataclasses import dataclass

from quire.servers.keys import AddressKeys
from quire.service.config import MS_IN_S, conf_key


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenConfig(AddressKeys):
    """Ports on which a broker listens, and the host by which it is known."""

    bind_address: str = conf_key("bindAddress", "0.0.0.0", doc="Address to listen on, for both ports.")
    broker_port: int = conf_key(
        "brokerServicePort", 6650, minimum=0, maximum=65535, doc="Port of the binary protocol. 0 takes a free one."
    )
    web_port: int = conf_key(
        "webServicePort",
        8080,
        minimum=0,
        maximum=65535,
        doc="Port of status, health, metrics and the admin REST. 0 takes a free one.",
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
        10_000,
        unit=MS_IN_S,
        minimum=0,
        doc="Maximum time for connections to end when the server stops.",
    )

    @property
    def advertised_host(self) -> str:
        """The host that lookups answer."""
        if self.advertised_address:
            return self.advertised_address
        return "127.0.0.1" if self.bind_address in ("0.0.0.0", "::", "") else self.bind_address

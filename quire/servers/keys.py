"""Keys that several servers have alike, and no room below them."""

from __future__ import annotations

from dataclasses import dataclass

from quire.service.config import conf_key


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressKeys:
    """The host by which others reach the server."""

    advertised_address: str = conf_key(
        "advertisedAddress",
        "",
        doc="Host in the answers to lookups, to which clients connect. Set it if clients are on other "
        "machines. Empty: 127.0.0.1 if bindAddress is every address, else bindAddress.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpKeys:
    """The web port of a bookie or of auto recovery."""

    enabled: bool = conf_key(
        "httpServerEnabled", False, doc="true: serve health, metrics and administration over HTTP."
    )
    host: str = conf_key("httpServerHost", "0.0.0.0", doc="Address that the HTTP server listens on.")
    port: int = conf_key(
        "httpServerPort",
        8080,
        minimum=0,
        maximum=65535,
        doc="Port of the HTTP server. 0 takes a free one, with allowEphemeralPorts.",
    )

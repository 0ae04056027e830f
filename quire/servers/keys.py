"""Keys that several servers have alike, and no room below them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from quire.service.config import conf_key
from quire.world.doors import World
from quire.world.tls_options import PEM, PKCS12, TlsOptions

if TYPE_CHECKING:
    from quire.world.tls_sides import ServerTls

REFRESH_S: Final = 300.0
"""Seconds between two looks at the files of the HTTP server's TLS."""


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
    tls_enabled: bool = conf_key(
        "httpServerTlsEnable",
        False,
        doc="true: the HTTP server speaks TLS only, and its clients need a certificate that httpServerTrustStorePath "
        "trusts.",
    )
    key_store: str = conf_key(
        "httpServerKeyStorePath",
        "",
        doc="Its certificate and key: a store of type PKCS12, or a file NAME.pem with both. Stores of type JKS cannot "
        "be read.",
    )
    key_store_password: str = conf_key("httpServerKeyStorePassword", "", doc="Password of httpServerKeyStorePath.")
    trust_store: str = conf_key(
        "httpServerTrustStorePath", "", doc="Authorities that sign the certificates of its clients, of the same types."
    )
    trust_store_password: str = conf_key(
        "httpServerTrustStorePassword",
        "",
        doc="Password of httpServerTrustStorePath. Empty: that of httpServerKeyStorePath.",
    )

    def tls(self) -> TlsOptions | None:
        """Return the options of the port; None: it has no TLS. Raises ValueError.

        Source: BookKeeper's VertxHttpServer, which requires certificates of clients, and ServerConfiguration."""
        if not self.enabled or not self.tls_enabled:
            return None
        for key, path in (
            ("httpServerKeyStorePath", self.key_store),
            ("httpServerTrustStorePath", self.trust_store),
        ):
            if not path:
                raise ValueError(f"httpServerTlsEnable=true needs {key}")
        of_key, of_trust = (PEM if path.endswith(".pem") else PKCS12 for path in (self.key_store, self.trust_store))
        return TlsOptions(
            key_type=of_key,
            certificate_file=self.key_store if of_key == PEM else "",
            key_file=self.key_store,
            key_password=self.key_store_password,
            trust_type=of_trust,
            trust_file=self.trust_store,
            trust_password=self.trust_store_password or self.key_store_password,
            require_certificate=True,
        )

    async def side(self, world: World) -> ServerTls | None:
        """Return the TLS of the port; None: it has none. ConfigError: the files cannot be used."""
        options = self.tls()
        if options is None:
            return None
        # Imported here, because most processes do not need it.
        from quire.servers.tls import HTTP_PROTOCOLS, open_server_tls

        return await open_server_tls(
            world, options, name="httpServerPort", refresh_s=REFRESH_S, protocols=HTTP_PROTOCOLS
        )

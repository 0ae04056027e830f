"""Question to a ZooKeeper server whether it serves: the command `srvr`, on the port of clients.

Without a `clientPort` the question goes to `secureClientPort`, over TLS. A server that requires certificates of clients
(`ssl.clientAuth`, by default) is shown its own, from `ssl.keyStore.location`.

Sources: ZooKeeper's QuorumPeerConfig and X509Util for the keys, KeyStoreFileType for the types of stores.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quire.servers.errors import CliError
from quire.world.real_tls import TlsFiles
from quire.world.tls_options import PEM, PKCS12, TlsOptions

ANSWER_S: Final = 1.0
_KINDS: Final = {".pem": PEM, ".p12": PKCS12, ".pfx": PKCS12, ".jks": "JKS", ".bcfks": "BCFKS"}
"""Types of stores by the ends of their names."""


class ZooKeeperServerError(CliError):
    """The server cannot be started, or has ended."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Address at which a server listens for clients."""

    host: str
    port: int
    context: ssl.SSLContext | None
    """TLS to it; None: it listens without."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def answers(self) -> bool:
        """Return whether it serves. Blocking, for about a second at most."""
        try:
            with socket.create_connection((self.host, self.port), timeout=ANSWER_S) as raw:
                if self.context is None:
                    return _asked(raw)
                with self.context.wrap_socket(raw) as secure:
                    return _asked(secure)
        except OSError:
            return False

    def is_taken(self) -> bool:
        """Return whether anything listens there."""
        try:
            with socket.create_connection((self.host, self.port), timeout=ANSWER_S):
                return True
        except OSError:
            return False


def probe_of(conf: Path) -> Probe:
    """Return the probe of the server with this zoo.cfg. Raises ZooKeeperServerError."""
    lines = (line.partition("=") for line in conf.read_text().splitlines() if not line.lstrip().startswith("#"))
    settings = {key.strip(): value.strip() for key, _, value in lines}
    for prefix, port in (("client", "clientPort"), ("secureClient", "secureClientPort")):
        if settings.get(port, "").isdigit():
            host = settings.get(f"{prefix}PortAddress", "127.0.0.1")
            host = "127.0.0.1" if host in ("0.0.0.0", "::") else host
            return Probe(host, int(settings[port]), _context(conf, settings) if prefix == "secureClient" else None)
    raise ZooKeeperServerError(f"{conf} names no clientPort, and no secureClientPort")


def _asked(connection: socket.socket) -> bool:
    connection.sendall(b"srvr")
    return b"Zookeeper version" in connection.recv(4096)


def _context(conf: Path, settings: Mapping[str, str]) -> ssl.SSLContext:
    """Return a context that takes any certificate of the server, because nothing that matters is sent to it."""
    store = settings.get("ssl.keyStore.location", "")
    if settings.get("ssl.clientAuth", "need") != "need":
        store = ""
    elif not store:
        raise ZooKeeperServerError(f"{conf}: secureClientPort needs ssl.keyStore.location")
    kind = settings.get("ssl.keyStore.type") or _KINDS.get(Path(store).suffix.lower(), PEM)
    try:
        options = TlsOptions(
            key_type=kind if store else PEM,
            certificate_file=store if kind == PEM else "",
            key_file=store,
            key_password=settings.get("ssl.keyStore.password", ""),
            key_password_file=settings.get("ssl.keyStore.passwordPath", ""),
            verify=False,
        )
        return TlsFiles(options, server_side=False).context
    except (OSError, ValueError) as error:
        raise ZooKeeperServerError(
            f"{conf}: ssl.keyStore.location={store} is needed to ask the server whether it serves: {error}"
        ) from error

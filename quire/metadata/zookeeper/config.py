"""Connect strings and settings of a ZooKeeper client (pure).

    zk+hierarchical://h1:2181;h2:2181/pulsar/ledgers    BookKeeper's metadataServiceUri: the path is the ledgers' root
    zk:h1:2181,h2:2181/pulsar, zk://h1,h2/pulsar        Pulsar's metadataStoreUrl: the path is a chroot
    h1:2181,h2/pulsar                                   zkServers, metadataServers: the same without a scheme

Source: BookKeeper's ZKMetadataDriverBase, Pulsar's ZKMetadataStore, ZooKeeper's ConnectStringParser.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

from quire.metadata import paths
from quire.metadata.errors import InvalidConnectStringError, MetadataError

DEFAULT_PORT = 2181
LAYOUT_NAMES = ("flat", "hierarchical", "longhierarchical")

_FORM = re.compile(
    r"(?:(?P<scheme>zk(?:\+(?P<layout>[a-z]+))?):(?://)?)?(?P<servers>[^/]*)(?P<path>/.*)?", re.IGNORECASE
)
_SERVER = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.%]+)\]|(?P<host>[^\[\]:]+))(?::(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectString:
    servers: tuple[tuple[str, int], ...]
    """Host and port of each server; any of them will do."""
    path: str = paths.ROOT
    layout: str | None = None
    """One of LAYOUT_NAMES if the string names the layout of ledgers; the string is BookKeeper's then."""
    names_ledgers: bool = False
    """True if the scheme was BookKeeper's (`zk+...`): `path` is the ledgers' root, not a chroot."""

    @property
    def chroot(self) -> str:
        """Return the node that is the root of a store's paths; `/` if none is given."""
        return paths.ROOT if self.names_ledgers else self.path

    @property
    def ledgers_root(self) -> str:
        """Return the path of ledgers and bookies below the chroot."""
        return self.path if self.names_ledgers else "/ledgers"


def parse_connect_string(text: str) -> ConnectString:
    """Parse a connect string. InvalidConnectStringError says what is wrong.

    >>> parse_connect_string("zk+hierarchical://h1:2181;h2/ledgers").servers
    (('h1', 2181), ('h2', 2181))
    >>> parse_connect_string("h1:2182,h2:2183/pulsar").chroot
    '/pulsar'
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise InvalidConnectStringError(f"{text!r} is not a ZooKeeper connect string (zk:host:port,host:port/chroot)")
    layout = found["layout"]
    if layout is not None:
        layout = layout.lower()
        if layout not in (*LAYOUT_NAMES, "null"):
            raise InvalidConnectStringError(
                f"{text!r} asks for the unknown layout {layout!r}: {', '.join(LAYOUT_NAMES)}"
            )
    servers = tuple(_server(text, part) for part in re.split("[,;]", found["servers"]))
    path = (found["path"] or paths.ROOT).rstrip("/") or paths.ROOT
    try:
        paths.check(path)
    except MetadataError as error:
        raise InvalidConnectStringError(f"{text!r}: {error}") from error
    if layout is not None and path == paths.ROOT:
        raise InvalidConnectStringError(f"{text!r} does not name the ledgers' root, such as /ledgers")
    known = layout if layout in LAYOUT_NAMES else None
    return ConnectString(servers=servers, path=path, layout=known, names_ledgers=layout is not None)


def _server(text: str, part: str) -> tuple[str, int]:
    found = _SERVER.fullmatch(part.strip())
    port = int(found["port"] or DEFAULT_PORT) if found else 0
    if found is None or not 0 < port < 1 << 16:
        raise InvalidConnectStringError(f"{part!r} in {text!r} is not a server (host or host:port)")
    return found["six"] or found["host"], port


class SessionExpiredPolicy(Enum):
    """Values of `zookeeperSessionExpiredPolicy`."""

    RECONNECT = "reconnect"
    """Continue with a new session. Every watch reports a change, and owners of ephemeral nodes create them again."""
    SHUTDOWN = "shutdown"
    """End the store: its `expired` is set, and the server should end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    ca_file: str | None = None
    """PEM file of trusted authorities; None: those the system trusts."""
    certificate_file: str | None = None
    """PEM file of our own certificate, for servers that ask for one; requires `key_file`."""
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify: bool = True
    check_hostname: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperConfig:
    """Settings of a ZooKeeper client. InvalidConnectStringError if they contradict each other."""

    servers: tuple[tuple[str, int], ...]
    chroot: str = paths.ROOT
    make_chroot: bool = False
    """True to create the chroot's node if it is missing.

    By default it is refused, because a misspelt chroot would be an empty cluster.
    """
    session_timeout_s: float = 30.0
    """Requested session timeout; the server grants between 2 and 20 of its ticks."""
    connect_timeout_s: float = 30.0
    """Time limit for the first connection."""
    call_timeout_s: float = 30.0
    """Time limit for each call, lost connections and retries included."""
    retry_first_s: float = 0.1
    retry_max_s: float = 1.0
    """Longest pause between attempts to connect; pauses grow."""
    session_expired_policy: SessionExpiredPolicy = SessionExpiredPolicy.SHUTDOWN
    auth: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Scheme and credential: ("digest", "user:password")."""
    secure: bool = False
    """zkEnableSecurity: nodes get all rights for their creator and read for others; otherwise they are open to all."""
    tls: Tls | None = None
    in_flight_max: int = 200
    """Largest number of requests sent and not answered; further ones are queued.

    (At about 270 kazoo's pipe to its thread is full, and would block.)
    """
    waiting_max: int = 100_000
    """Largest number of queued requests; further ones are refused."""
    request_max_bytes: int = 0xFFFFF
    """The servers' jute.maxbuffer.

    Servers close the connection at a larger request, so it is refused before it is sent.
    """
    requests_per_second: float = 0.0
    """Rate of calls; 0: any."""
    idle_watches_max: int = 1000
    """Number of watches without users before the oldest is removed from the server."""

    def __post_init__(self) -> None:
        if not self.servers:
            raise InvalidConnectStringError("a ZooKeeper needs at least one server")
        if self.secure and not self.auth and (self.tls is None or self.tls.certificate_file is None):
            raise InvalidConnectStringError(
                "zkEnableSecurity needs an identity: configure digest credentials or a TLS client certificate"
            )
        if self.tls is not None and (self.tls.certificate_file is None) != (self.tls.key_file is None):
            raise InvalidConnectStringError("a TLS client certificate needs its key, and a key its certificate")
        assert 0 < self.in_flight_max <= 256, "kazoo's pipe holds at most about 270 wake-ups"

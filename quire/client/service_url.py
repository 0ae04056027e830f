"""Service URLs: addresses of a client's first broker."""

from __future__ import annotations

from typing import NamedTuple

DEFAULT_PORT = 6650
DEFAULT_PORT_TLS = 6651
_SCHEME = "pulsar://"
_SCHEME_TLS = "pulsar+ssl://"
_REMEDIES = {
    "http://": "this is the web service's scheme; use pulsar:// and the broker's port, usually 6650",
    "https://": "this is the web service's scheme; use pulsar:// and the broker's port, usually 6650",
}


class Address(NamedTuple):
    """A broker's host and port, and whether it has TLS."""

    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_service_url(url: str) -> tuple[Address, ...]:
    """Return the addresses in a URL, in its order. Raises ValueError with the remedy.

    >>> [*map(str, parse_service_url("pulsar://one:6650,[::1]:6651,three"))], parse_service_url("pulsar+ssl://one")
    (['one:6650', '[::1]:6651', 'three:6650'], (Address(host='one', port=6651, tls=True),))
    """
    tls = url.startswith(_SCHEME_TLS)
    if not tls and not url.startswith(_SCHEME):
        for scheme, remedy in _REMEDIES.items():
            if url.startswith(scheme):
                raise ValueError(f"{url!r}: {remedy}")
        raise ValueError(f"{url!r} is not a service URL: write pulsar://host:port[,host:port...], or pulsar+ssl://")
    hosts = url.removeprefix(_SCHEME_TLS if tls else _SCHEME).rstrip("/").split(",")
    return tuple(_parse_address(host, url, tls) for host in hosts)


def _parse_address(text: str, url: str, tls: bool) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT_TLS if tls else DEFAULT_PORT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{url!r}: an IPv6 address goes in brackets, as in pulsar://[::1]:6650")
    if not host or set(host) & set("/?#@ ") or not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise ValueError(f"{url!r}: {text!r} is not host:port")
    return Address(host, int(port), tls)

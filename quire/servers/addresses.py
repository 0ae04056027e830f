"""Addresses of a started server, and its `ready` line."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from quire.servers.errors import PortError
from quire.world.unwrap import leaves


@dataclass(frozen=True, slots=True)
class Addresses:
    """Host and port as clients use them; None for ports that are not served. For the URLs see
    `broker.ownership.urls`."""

    broker: tuple[str, int] | None
    web: tuple[str, int] | None
    broker_tls: tuple[str, int] | None = None
    web_tls: tuple[str, int] | None = None

    @property
    def broker_url(self) -> str:
        return f"pulsar://{host_port(self.broker)}" if self.broker else self.broker_url_tls

    @property
    def web_url(self) -> str:
        return f"http://{host_port(self.web)}" if self.web else self.web_url_tls

    @property
    def broker_url_tls(self) -> str:
        return f"pulsar+ssl://{host_port(self.broker_tls)}" if self.broker_tls else ""

    @property
    def web_url_tls(self) -> str:
        return f"https://{host_port(self.web_tls)}" if self.web_tls else ""

    @property
    def tls_part(self) -> str:
        """Return the part of a `ready` line about the ports with TLS; empty if there are none."""
        found = (("broker_tls", self.broker_url_tls), ("web_tls", self.web_url_tls))
        return "".join(f" {key}={url}" for key, url in found if url)


def host_port(address: tuple[str, int]) -> str:
    """`host:port`, with an IPv6 address in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextmanager
def naming(key: str, host: str, port: int) -> Iterator[None]:
    """Translate the failure to listen inside to a PortError with the address, its configuration key, and the remedy."""
    try:
        yield
    except (OSError, ExceptionGroup) as error:
        cause = next(leaves(error))
        if not isinstance(cause, OSError):
            raise
        at, why = host_port((host, port)), cause.strerror or str(cause)
        raise PortError(
            f"{key}={port}: cannot listen on {at}: {why}; "
            f"stop the program that listens there, or set {key} to another port"
        ) from error


def free_port() -> int:
    """Return a port that no program listens on now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def ready_line(addresses: Addresses, *, data: str, pid: int, start_s: float) -> str:
    """Return `ready broker=pulsar://127.0.0.1:6650 web=http://127.0.0.1:8080 data=... pid=... start_s=0.42`."""
    urls = f"broker={addresses.broker_url} web={addresses.web_url}{addresses.tls_part}"
    return f"ready {urls} data={data} pid={pid} start_s={start_s:.2f}"

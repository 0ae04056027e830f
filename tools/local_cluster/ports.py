"""Ports for servers that are killed and restarted on the same one."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from pathlib import Path

from tools.local_cluster.errors import NoPortsError

LOWEST = 12_000
EPHEMERAL = 32_768
"""First ephemeral port of the kernel, if it does not report it."""
TRIES_MAX = 10_000


def free_ports(count: int, taken: Collection[int] = ()) -> list[int]:
    """Return `count` ports on which no program listens, none of `taken`.

    They lie below the kernel's ephemeral ports: one of those might be taken by a connection while its server is down,
    which then cannot be restarted."""
    end = _ephemeral_from()
    found: list[int] = []
    for _ in range(TRIES_MAX):
        if len(found) == count:
            return found
        port = random.SystemRandom().randrange(LOWEST, end)
        if port not in found and port not in taken and _is_free(port):
            found.append(port)
    raise NoPortsError(f"there are no {count} free ports between {LOWEST} and {end}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _ephemeral_from() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = EPHEMERAL
    return first if first > LOWEST + 1000 else 65_535

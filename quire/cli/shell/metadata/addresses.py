"""The two ids that a bookie of this machine can have: by the host's address, and by the host's name."""

from __future__ import annotations

from dataclasses import dataclass, replace

from quire.cli.shell.context import Shell
from quire.servers.bookie.host_name import own_host


@dataclass(frozen=True, slots=True)
class BookieNames:
    by_ip: str
    by_name: str


def addresses(shell: Shell) -> BookieNames:
    """Return both ids; they are the same with `advertisedAddress`. Raises ConfigError."""
    config = shell.config
    if config.advertised_address:
        own = f"{config.advertised_address}:{config.port}"
        return BookieNames(own, own)
    by_ip, by_name = (own_host(replace(config.name, use_host_name=named)) for named in (False, True))
    return BookieNames(f"{by_ip}:{config.port}", f"{by_name}:{config.port}")

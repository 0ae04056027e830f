"""The name of the host that a bookie runs on, which is a part of the bookie's id unless it has one of its own."""

from __future__ import annotations

import fcntl
import socket
import struct
from dataclasses import dataclass
from typing import Final

from quire.service.config import conf_key
from quire.service.errors import ConfigError

_SIOCGIFADDR: Final = 0x8915


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieNameKeys:
    """Keys of the host's name."""

    listening_interface: str = conf_key(
        "listeningInterface", "", doc="Network interface to listen on, such as eth0. Empty: all."
    )
    allow_loopback: bool = conf_key(
        "allowLoopback",
        False,
        doc="true: the bookie's name may be an address that only this machine can reach; false: such a "
        "bookie does not start.",
    )
    use_host_name: bool = conf_key(
        "useHostNameAsBookieID", False, doc="true: the bookie's name is its host's name, not its address."
    )
    use_short_host_name: bool = conf_key(
        "useShortHostName", False, doc="With useHostNameAsBookieID: the name without its domain."
    )


def own_host(config: BookieNameKeys) -> str:
    """Return the name of this machine, or its address. Raises ConfigError if others cannot reach it."""
    address = interface_address(config.listening_interface) if config.listening_interface else None
    name = socket.getfqdn()
    if address is None:
        try:
            address = socket.gethostbyname(socket.gethostname())
        except OSError as error:
            raise ConfigError(f"this host's name has no address ({error}): set advertisedAddress") from error
    if address.startswith("127.") and not config.allow_loopback:
        raise ConfigError(
            f"this host's name resolves to {address}, which others cannot reach: set advertisedAddress or "
            "listeningInterface, or allowLoopback=true for a cluster on one machine"
        )
    if config.use_host_name:
        return name.partition(".")[0] if config.use_short_host_name else name
    return address


def interface_address(name: str) -> str:
    """Return the IPv4 address of a network interface. Raises ConfigError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError as error:
            raise ConfigError(f"listeningInterface={name}: {error.strerror}") from error
    return socket.inet_ntoa(answer[20:24])

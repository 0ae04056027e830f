"""The address that stands for a client: a machine, or a network that is one machine's (pure)."""

from __future__ import annotations

from ipaddress import AddressValueError, IPv6Address

from quire.service.serve import address_of

_OWN_BITS = 64
"""Bits of an address of IPv6 that its machine chooses."""


def place_of(peer: str) -> str:
    """Return the address of a peer (host:port); of IPv6 its network, in which one machine has all addresses it likes.

    >>> place_of("10.0.0.1:6650"), place_of("2001:db8:1:2:aaaa:bbbb:cccc:dddd:6650")
    ('10.0.0.1', '2001:db8:1:2::/64')
    """
    host = address_of(peer)
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host.partition("%")[0])
    except AddressValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> _OWN_BITS << _OWN_BITS)}/{_OWN_BITS}"

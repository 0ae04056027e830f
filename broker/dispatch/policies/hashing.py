"""Hash by which Pulsar's brokers choose a consumer."""

from __future__ import annotations

from collections.abc import Iterable

import mmh3


def murmur(data: bytes | str) -> int:
    """Return Murmur3 (x86, 32 bits, seed 0) without its sign bit; text as UTF-8."""
    return mmh3.hash(data, 0, False) & 0x7FFF_FFFF


def murmurs(keys: Iterable[bytes], modulus: int) -> list[int]:
    """Return `murmur` of each key, modulo a number."""
    hash_of = mmh3.hash
    return [(hash_of(key, 0, False) & 0x7FFF_FFFF) % modulus for key in keys]

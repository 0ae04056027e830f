"""Partition of a key, as the official clients route it, and the form of keys."""

from __future__ import annotations

from base64 import b64encode
from functools import lru_cache
from operator import mul
from typing import Literal, TypeAlias

import mmh3

HashingScheme: TypeAlias = Literal["JavaStringHash", "Murmur3_32Hash", "BoostHash"]

_MASK = 0x7FFF_FFFF
_POWERS_OF_31 = [1]
_WORD = (1 << 64) - 1
_BOOST_STEP = 0x9E37_79B9_7F4A_7C15
_BOOST_FACTOR = 0xDF44_2D22_CE48_59B9
"""The square of the step, modulo 2^64."""


@lru_cache(maxsize=1 << 16)
def partition_of(key: bytes | str, partitions: int, scheme: HashingScheme = "JavaStringHash") -> int:
    """Return the partition of a message with this key.

    A key that is not text is hashed as the base64 it is sent as. JavaStringHash uses UTF-16 units, as Java does; the
    C++ and Go clients use bytes, which is the same for ASCII only. BoostHash is the default of the official C++ and
    Python clients, in builds with Boost 1.81 or newer on 64 bits.

    Args:
        key: key of the message.
        partitions: number of partitions.
        scheme: JavaStringHash, Murmur3_32Hash or BoostHash.

    Returns:
        The partition, from 0.

    Raises:
        ValueError: unknown scheme, or fewer than one partition.

    Source: JavaStringHash.java, Murmur3Hash32.java and RoundRobinPartitionMessageRouterImpl.java of Pulsar's client.

    Example:
        Args:
            key: key of the message.
            partitions: number of partitions.
            scheme: JavaStringHash, Murmur3_32Hash or BoostHash.

        Returns:
            The partition, from 0.

        Raises:
            ValueError: unknown scheme, or fewer than one partition.

        Source: JavaStringHash.java, Murmur3Hash32.java and RoundRobinPartitionMessageRouterImpl.java of Pulsar's
            client.

        Example:
            Args:
                key: key of the message.
                partitions: number of partitions.
                scheme: JavaStringHash, Murmur3_32Hash or BoostHash.

            Returns:
                The partition, from 0.

            Raises:
                ValueError: unknown scheme, or fewer than one partition.

            Source: JavaStringHash.java, Murmur3Hash32.java and RoundRobinPartitionMessageRouterImpl.java of Pulsar's
                client.

            Example:
                >>> partition_of("key-17", 4), partition_of(b"key-17", 4, "Murmur3_32Hash")
                (0, 3)
    """
    if partitions < 1:
        raise ValueError(f"a topic of {partitions} partitions")
    text, _ = key_text(key)
    if scheme == "JavaStringHash":
        value = java_string_hash(text)
    elif scheme == "Murmur3_32Hash":
        value = int(mmh3.hash(text.encode(), 0, False)) & _MASK
    elif scheme == "BoostHash":
        value = boost_hash(text.encode()) & _MASK
    else:
        raise ValueError(f"hashing scheme {scheme!r} is not one of JavaStringHash, Murmur3_32Hash, BoostHash")
    return value % partitions


def java_string_hash(text: str) -> int:
    """Return Java's String.hashCode without its sign bit.

    >>> java_string_hash("hello"), java_string_hash("")
    (99162322, 0)
    """
    units = text.encode("ascii") if text.isascii() else memoryview(text.encode("utf-16-le")).cast("H")
    while len(_POWERS_OF_31) < len(units):
        _POWERS_OF_31.append(_POWERS_OF_31[-1] * 31 & 0xFFFF_FFFF)
    value: int = sum(map(mul, reversed(units), _POWERS_OF_31)) & _MASK
    return value


def boost_hash(data: bytes) -> int:
    """Boost's hash of a string since 1.81, on 64 bits: each word of 8 bytes (little endian, the last one short) is
    added to a running step, multiplied to 128 bits, folded, and mixed in. Source: the description of
    Boost.ContainerHash; checked against partitions that the official Python client 3.13 chose.

    >>> boost_hash(b"key-17") % 64, boost_hash(b"abcdefghi") % 64
    (44, 46)
    """
    step = _folded_product(_BOOST_STEP)
    value = step ^ len(data)
    # A string whose length is a multiple of 8 ends in an empty word, which counts too.
    for at in range(0, len(data) + 1, 8):
        step = step + _BOOST_STEP & _WORD
        value ^= _folded_product(int.from_bytes(data[at : at + 8], "little") + step)
    return _folded_product(value + step)


def _folded_product(word: int) -> int:
    product = (word & _WORD) * _BOOST_FACTOR
    return (product ^ product >> 64) & _WORD


def key_text(key: bytes | str) -> tuple[str, bool]:
    """Return a key as it is stored in metadata, and whether that is base64: partition_key is text, so other bytes need
    it.

    >>> key_text(b"a"), key_text(b"\\xff\\x00")
    (('a', False), ('/wA=', True))
    """
    if isinstance(key, str):
        return key, False
    try:
        return key.decode(), False
    except UnicodeDecodeError:
        return b64encode(key).decode(), True

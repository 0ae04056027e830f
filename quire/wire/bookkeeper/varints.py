"""Varints, protobuf's integers of 1 to 10 bytes: seven bits each, the low ones first, the high bit set in all but the
last. Pure.

A negative int64 travels as its two's complement, in ten bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

UNSIGNED_64: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63
_LAST: Final = [bytes([value]) for value in range(128)]
_MORE: Final = [bytes([value | 128]) for value in range(128)]


def encode(value: int) -> bytes:
    """Return the bytes of an int64 or uint64.

    >>> encode(1), encode(300), len(encode(-1))
    (b'\\x01', b'\\xac\\x02', 10)
    """
    value &= UNSIGNED_64
    if value < 128:
        return _LAST[value]
    pieces: list[bytes] = []
    while value > 127:
        pieces.append(_MORE[value & 127])
        value >>= 7
    pieces.append(_LAST[value])
    return b"".join(pieces)


def decode(data: bytes) -> int:
    """Return the unsigned value of one whole varint, cut to 64 bits.

    >>> decode(encode(300))
    300
    """
    value = data[0]
    if value < 128:
        return value
    value &= 127
    shift = 7
    for byte in data[1:]:
        value |= (byte & 127) << shift
        shift += 7
    return value & UNSIGNED_64


def decode_signed(data: bytes) -> int:
    """Return the value of one whole varint as an int64.

    >>> decode_signed(encode(-1))
    -1
    """
    value = decode(data)
    return value - (1 << 64) if value & _SIGN else value


def consecutive(first: int, count: int) -> list[bytes]:
    """Return the varints of `count` integers from `first` (0 or more) on: some 50 ns each.

    >>> consecutive(126, 4) == [encode(value) for value in range(126, 130)]
    True
    """
    varints: list[bytes] = []
    value = first
    end = first + count
    while value < end:
        # Within a block of 128 only the first byte changes.
        block_end = min(end, (value | 127) + 1)
        low, high = value & 127, (value & 127) + block_end - value
        if value < 128:
            varints += _LAST[low:high]
        else:
            rest = encode(value >> 7)
            varints += [more + rest for more in _MORE[low:high]]
        value = block_end
    return varints


def encode_all(values: Sequence[int]) -> list[bytes]:
    """Return the varints of `values`; a range of step 1 is fast.

    >>> encode_all(range(3)) == encode_all([0, 1, 2])
    True
    """
    if isinstance(values, range) and values.step == 1 and values.start >= 0:
        return consecutive(values.start, len(values))
    return [encode(value) for value in values]


def endless(first: int) -> Iterator[bytes]:
    """Yield the varints of `first` (0 or more), first + 1, ...: built on demand, a few at once."""
    return chain.from_iterable(_blocks(first))


def _blocks(first: int) -> Iterator[list[bytes]]:
    count = 4
    while True:
        yield consecutive(first, count)
        first += count
        count = 128

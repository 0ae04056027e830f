from __future__ import annotations

import random
from itertools import islice
from typing import Any

from google.protobuf.internal import encoder

from quire.wire.bookkeeper.varints import consecutive, decode, decode_signed, encode, encode_all, endless

PROTOBUF: Any = encoder
"""Encoder of the protobuf library, which has no types."""
EDGES = [0, 1, 127, 128, 255, 16383, 16384, (1 << 35) - 1, 1 << 35, (1 << 63) - 1]


def test_integers_of_every_width_are_encoded_as_protobuf_encodes_them() -> None:
    rng = random.Random(1)
    for value in EDGES + [rng.getrandbits(rng.randrange(1, 64)) for _ in range(1000)]:
        assert encode(value) == PROTOBUF._VarintBytes(value)
        assert decode(encode(value)) == value == decode_signed(encode(value))
    for value in (-1, -2, -(1 << 63)):
        assert encode(value) == PROTOBUF._VarintBytes(value & (1 << 64) - 1)
        assert decode_signed(encode(value)) == value
        assert decode(encode(value)) == value + (1 << 64)


def test_consecutive_integers_are_the_same_whatever_widths_they_cross() -> None:
    for edge in EDGES:
        first = max(0, edge - 150)
        assert consecutive(first, 300) == [encode(value) for value in range(first, first + 300)]
        assert list(islice(endless(first), 300)) == consecutive(first, 300)
    assert consecutive(5, 0) == []
    assert encode_all(range(-3, 3)) == encode_all([-3, -2, -1, 0, 1, 2])
    assert encode_all(range(0, 9, 3)) == [encode(0), encode(3), encode(6)]

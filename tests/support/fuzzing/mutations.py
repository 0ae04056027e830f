"""Mutations of bytes, drawn from a seeded random number generator (pure).

`spoiled` changes the inside of a message, so that the frame around it can be made to fit again; `torn` changes a whole
frame with its lengths, after which nothing on the connection needs to be a frame any more.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

HUGE_VARINTS = (
    b"\xff\xff\xff\xff\x07",  # 2^31 - 1
    b"\xff\xff\xff\xff\x0f",  # 2^32 - 1
    b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # 2^63 - 1
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # 2^64 - 1, or -1
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",  # -2^63
    b"\xff" * 11,  # none
)
LENGTHS = (0, 1, 3, 4, 5, 7, 8, 0x7F, 0xFFFF, (5 << 20) + 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
REPEATS = (2, 3, 16, 300)


def spoiled(rng: random.Random, body: bytes, others: Sequence[bytes]) -> bytes:
    """Return a message with one to four changes; parts of `others` may be spliced in."""
    changed = bytearray(body)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if not changed:
            return rng.randbytes(rng.randrange(1, 30))
        at = rng.randrange(len(changed))
        match rng.randrange(9):
            case 0 | 1:
                changed[at] ^= 1 << rng.randrange(8)
            case 2:
                changed[at] = rng.randrange(256)
            case 3:
                del changed[at : at + rng.choice((1, 2, 8, 64))]
            case 4:
                changed[at:at] = rng.randbytes(rng.choice((1, 2, 8, 64)))
            case 5:
                changed[at : at + 1] = rng.choice(HUGE_VARINTS)
            case 6:
                part = changed[at : at + rng.choice((2, 8, 32))]
                changed[at:at] = part * rng.choice(REPEATS)
            case 7:
                other = rng.choice(others)
                changed[at:] = other[rng.randrange(len(other) + 1) :]
            case _:
                del changed[at:]
    return bytes(changed)


def torn(rng: random.Random, frame: bytes) -> bytes:
    """Return a frame whose lengths lie, that ends early, or that begins with something else."""
    changed = bytearray(frame)
    match rng.randrange(5):
        case 0:
            changed[:4] = rng.choice(LENGTHS).to_bytes(4, "big")
        case 1:
            changed[4:8] = rng.choice(LENGTHS).to_bytes(4, "big")
        case 2:
            del changed[rng.randrange(len(changed)) :]
        case 3:
            changed[:0] = rng.randbytes(rng.choice((1, 4, 100)))
        case _:
            at = rng.randrange(min(len(changed), 16))
            changed[at] ^= 1 << rng.randrange(8)
    return bytes(changed)


def nested(tag: bytes, depth: int) -> bytes:
    """Return `depth` messages of protobuf, each the only field of the one around it."""
    made = b""
    for _ in range(depth):
        size, length = len(made), b""
        while size > 0x7F:
            length += bytes((size & 0x7F | 0x80,))
            size >>= 7
        made = tag + length + bytes((size,)) + made
    return made

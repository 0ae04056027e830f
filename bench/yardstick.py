"""Speed of this machine for the primitives of the hot path, relative to the machine on which absolute limits were set.

A virtual machine has slow and fast hours, twice apart: microseconds that are compared with a limit need to know which
it is. Ratios of one interleaved run need nothing of the kind.
"""

from __future__ import annotations

import math
import timeit
from collections.abc import Callable, Mapping
from struct import Struct

from crc32c import crc32c

LIMITS_SET_AT_US: Mapping[str, float] = {
    "crc32c of 64 KB": 2.66,
    "crc32c of 1 KB": 0.157,
    "slice of a memoryview": 0.09,
    "unpack of three fields": 0.086,
    "join of 256 x 1060 B": 6.6,
}
"""CPU time of each primitive on the machine on which the limits were set: CPython 3.11, Zen 4, quiet."""
_REPEATS = 7
_ABOUT_S = 0.02


def measure() -> dict[str, float]:
    """Return the microseconds of each primitive now, the least of several tries. Takes about a second."""
    view = memoryview(bytes(1 << 16))
    small = bytes(1024)
    fields = Struct("!i32sq")
    parts = [bytes(1060) for _ in range(256)]
    primitives: dict[str, Callable[[], object]] = {
        "crc32c of 64 KB": lambda: crc32c(view),
        "crc32c of 1 KB": lambda: crc32c(small),
        "slice of a memoryview": lambda: view[100:1124],
        "unpack of three fields": lambda: fields.unpack_from(view, 100),
        "join of 256 x 1060 B": lambda: b"".join(parts),
    }
    return {name: _least_us(primitive, LIMITS_SET_AT_US[name]) for name, primitive in primitives.items()}


def factor(measured_us: Mapping[str, float]) -> float:
    """Return the factor to that machine: the geometric mean over the primitives.

    >>> factor({name: 2 * figure for name, figure in LIMITS_SET_AT_US.items()})
    2.0
    """
    logs = [math.log(measured_us[name] / figure) for name, figure in LIMITS_SET_AT_US.items()]
    return round(math.exp(sum(logs) / len(logs)), 3)


def sentence(before: float, after: float) -> str:
    """Return the note beside absolute figures: `factor` before and after they were taken."""
    return (
        f"yardstick: {before:.2f}x before, {after:.2f}x after, of the time on the machine on which the limits in "
        "microseconds were set"
    )


def _least_us(primitive: Callable[[], object], about_us: float) -> float:
    number = max(1, int(_ABOUT_S / about_us * 1e6))
    return min(timeit.repeat(primitive, number=number, repeat=_REPEATS)) / number * 1e6

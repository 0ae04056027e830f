"""Log of histograms, one interval per line, which HdrHistogram's tools read (pure).

    #[Histogram log format version 1.3]
    "StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"
    1700000000.000,10.000,12.345,HISTFAAAA...

Start and length are in seconds, the highest value is divided by a million, and the histogram is its second encoding,
compressed, in base64. Counters are ZigZag LEB128 numbers; a negative one stands for so many zeros. A tag stands before
the start. Source: HistogramLogWriter.java, AbstractHistogram.encodeIntoByteBuffer and ZigZagEncoding.java of
HdrHistogram 2.2.2.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable
from typing import IO

from quire.cli.perf.histogram import LatencyHistogram

HEAD = (
    "#[Histogram log format version 1.3]\n"
    '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n'
)
_COOKIE = 0x1C849303 | 0x10
_COMPRESSED_COOKIE = 0x1C849304 | 0x10
_HEADER = struct.Struct(">iiiiqqd")
_OUTER = struct.Struct(">ii")
_UNITS_PER_MAX = 1_000_000.0


class HistogramLog:
    """Writer of a log. Each interval is written at once."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        file.write(HEAD)
        file.flush()

    def write(self, histogram: LatencyHistogram, start_s: float, length_s: float, tag: str = "") -> None:
        """Append one interval. `start_s`: seconds since 1970."""
        self._file.write(line(histogram, start_s, length_s, tag))
        self._file.flush()


def line(histogram: LatencyHistogram, start_s: float, length_s: float, tag: str = "") -> str:
    """Return the line of an interval."""
    named = f"Tag={tag}," if tag else ""
    text = base64.b64encode(compressed(histogram)).decode()
    return f"{named}{start_s:.3f},{length_s:.3f},{histogram.maximum / _UNITS_PER_MAX:.3f},{text}\n"


def compressed(histogram: LatencyHistogram) -> bytes:
    """Return a histogram in its compressed encoding."""
    body = zlib.compress(encoded(histogram))
    return _OUTER.pack(_COMPRESSED_COOKIE, len(body)) + body


def encoded(histogram: LatencyHistogram) -> bytes:
    """Return a histogram in its second encoding."""
    payload = b"".join(map(_number, _runs(histogram.counts())))
    head = _HEADER.pack(_COOKIE, len(payload), 0, histogram.digits, 1, histogram.highest, 1.0)
    return head + payload


def _runs(counts: Iterable[int]) -> Iterable[int]:
    """Yield counters; two or more zeros are one negative number."""
    zeros = 0
    for count in counts:
        if count == 0:
            zeros += 1
            continue
        if zeros:
            yield -zeros if zeros > 1 else 0
            zeros = 0
        yield count
    if zeros:
        yield -zeros if zeros > 1 else 0


def _number(value: int) -> bytes:
    """Return a ZigZag LEB128 number. (It differs from the common form only from 2^55 on.)"""
    assert -(1 << 54) < value < 1 << 54
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)

"""Numbers as people read them (pure)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_MS_MIN: Final = 100_000_000_000
"""Smaller numbers are no milliseconds since 1970: this is in 1973."""
_BYTES: Final = re.compile(r"(size|bytes|bytes(in|out)counter|sizeinbytes|limitsize)$", re.IGNORECASE)
_NO_BYTES: Final = frozenset(("ensembleSize", "writeQuorumSize", "ackQuorumSize", "batchSize"))
_TIME: Final = re.compile(r"(timestamp|timestamps|opentimestamp|since_ms|timeout_?at|generatedat)$", re.IGNORECASE)


def size(number: float) -> str:
    """Return bytes: 0 B, 1.5 KiB; a negative number is no limit.

    >>> size(1536)
    '1.5 KiB'
    """
    if number < 0:
        return "no limit"
    for unit in _UNITS:
        if number < 1024 or unit == _UNITS[-1]:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    raise AssertionError


def count(number: float) -> str:
    """Return a number with groups of digits.

    >>> count(1234567)
    '1,234,567'
    """
    return f"{number:,}" if isinstance(number, int) else f"{number:,.1f}"


def rate(number: float) -> str:
    """Return events per second."""
    return f"{number:,.1f}/s"


def duration(seconds: float) -> str:
    """Return a time in its two largest units.

    >>> duration(3725)
    '1h 2m'
    """
    left = round(seconds)
    for unit, scale, smaller, smaller_scale in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if left >= scale:
            rest = left % scale // smaller_scale
            return f"{left // scale}{unit} {rest}{smaller}" if rest else f"{left // scale}{unit}"
    return f"{left}s"


def moment(ms: int, now_ms: int) -> str:
    """Return a time since 1970 with its age."""
    told = datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return f"{told} ({duration((now_ms - ms) / 1000)} ago)" if ms <= now_ms else told


def value(key: str, found: Any, now_ms: int) -> str:
    """Return a value as text; its key decides the unit."""
    if found is None:
        return "-"
    if isinstance(found, bool):
        return "yes" if found else "no"
    if isinstance(found, (int, float)):
        if "msgRate" in key or key.endswith("Rate"):
            return rate(found)
        if "Throughput" in key:
            return f"{size(found)}/s"
        if _BYTES.search(key) and key not in _NO_BYTES:
            return size(found)
        if _TIME.search(key) and found > _MS_MIN:
            return moment(int(found), now_ms)
        return count(found)
    if isinstance(found, (list, tuple)):
        return ", ".join(value("", each, now_ms) for each in found) or "-"
    if isinstance(found, dict):
        return ", ".join(f"{name}={value(name, each, now_ms)}" for name, each in found.items()) or "-"
    return str(found)

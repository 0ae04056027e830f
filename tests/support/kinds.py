"""Bytes of the living objects of some modules, by kind, without a clock: for tests of what one of many takes."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from types import FunctionType, MethodType
from typing import Final

_PARTS: Final = (dict, list, set, tuple, str, bytes, int, float, MethodType, FunctionType)
"""Types of parts that count with the object that has them."""


def bytes_by_kind(*rooms: str) -> Counter[str]:
    """Return the bytes of all objects of classes below these packages, and of the plain parts that they have. A part is
    counted once, and one that is not tracked by the collector with its first owner."""
    gc.collect()
    found: Counter[str] = Counter()
    seen: set[int] = set()
    for each in gc.get_objects():
        # A class may have an attribute of its own by that name, which is no text.
        if not str(type(each).__module__).startswith(rooms):
            continue
        kind = type(each).__qualname__
        found[kind] += sys.getsizeof(each)
        for part in gc.get_referents(each):
            if isinstance(part, _PARTS) and not isinstance(part, type) and id(part) not in seen:
                seen.add(id(part))
                found[f"{type(part).__name__} of {kind}"] += sys.getsizeof(part)
    return found

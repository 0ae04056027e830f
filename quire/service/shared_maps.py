"""Maps of objects of which there are thousands, and most of which have nothing in theirs: those share one empty map."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})


def with_item(found: Mapping[K, V], key: K, value: V) -> Mapping[K, V]:
    """Return the map with one more item: the same one, unless that is a shared one.

    >>> with_item(EMPTY, "a", 1)
    {'a': 1}
    """
    if not isinstance(found, dict):
        found = {}
    found[key] = value
    return found


def without_item(found: Mapping[K, V], key: K) -> Mapping[K, V]:
    """Return the map without an item that it has; the shared one if it was the last.

    >>> without_item({"a": 1}, "a")
    mappingproxy({})
    """
    assert isinstance(found, dict), "a shared map has no items"
    del found[key]
    return found or EMPTY

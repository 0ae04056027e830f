"""Bundles of brokers that did not answer: the numbers of their topics are not known, and are not zero. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final
from zlib import crc32

RING_SIZE: Final = 1 << 32


class SilentBundles:
    """Slices of the rings of namespaces, by the names of bundles: tenant/namespace/0x00000000_0x40000000."""

    def __init__(self, bundles: Iterable[str]) -> None:
        """Take the names; one that is none is left out."""
        self._lows: dict[str, list[int]] = {}
        self._highs: dict[str, list[int]] = {}
        spans: dict[str, list[tuple[int, int]]] = {}
        for bundle in bundles:
            namespace, _, span = bundle.rpartition("/")
            low, _, high = span.partition("_")
            try:
                spans.setdefault(namespace, []).append((int(low, 16), int(high, 16)))
            except ValueError:
                continue
        for namespace, found in spans.items():
            found.sort()
            self._lows[namespace] = [low for low, _ in found]
            # The last boundary is inside, the others are not.
            self._highs[namespace] = [RING_SIZE if high == RING_SIZE - 1 else high for _, high in found]

    def __bool__(self) -> bool:
        return bool(self._lows)

    def has(self, topic: str) -> bool:
        """Return whether the full name of a topic is in one of them.

        >>> SilentBundles(["a/b/0x00000000_0xffffffff"]).has("persistent://a/b/c")
        True
        """
        namespace = topic.partition("://")[2].rpartition("/")[0]
        lows = self._lows.get(namespace)
        if lows is None:
            return False
        hashed = crc32(topic.encode())
        place = bisect_right(lows, hashed) - 1
        return place >= 0 and hashed < self._highs[namespace][place]

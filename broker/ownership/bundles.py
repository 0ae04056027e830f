"""Bundles: slices of a namespace's ring of 2^32 hashes, the units of ownership (pure).

    0x00000000          0x40000000          0x80000000          0xc0000000          0xffffffff
        |------ bundle ------|------ bundle ------|------ bundle ------|------ bundle ------|
        low is inside, high is not, except the last high, which is

A topic's place on the ring is the CRC32 of its full name, `-partition-N` included.
Source: the original's NamespaceBundles, NamespaceBundleFactory and PoliciesUtil.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

from broker.ownership.errors import BundleSplitError, NoSuchBundleError
from quire.wire.pulsar.names import NamespaceName, TopicName

RING_END = 0xFFFFFFFF
"""The last hash, which is also the last boundary."""
RANGE_EQUALLY = "range_equally_divide"
TOPIC_COUNT_EQUALLY = "topic_count_equally_divide"
SPECIFIED_POSITIONS = "specified_positions_divide"
FLOW_EQUALLY = "flow_or_qps_equally_divide"
SPLIT_ALGORITHMS = (RANGE_EQUALLY, TOPIC_COUNT_EQUALLY, SPECIFIED_POSITIONS, FLOW_EQUALLY)


@lru_cache(maxsize=4096)
def hash_of(name: TopicName) -> int:
    """Return the topic's place on its namespace's ring.

    >>> hex(hash_of(TopicName.parse("persistent://public/default/orders")))
    '0xb135b9dc'
    """
    return crc32(name.full.encode())


@dataclass(frozen=True, slots=True, order=True)
class Bundle:
    """`low` is inside, `high` is not, unless it is RING_END.

    >>> str(Bundle(NamespaceName("public", "default"), 0, 0x40000000))
    'public/default/0x00000000_0x40000000'
    """

    namespace: NamespaceName
    low: int
    high: int
    path: str = field(init=False, compare=False, repr=False)
    """Path of its ephemeral node."""

    def __post_init__(self) -> None:
        assert 0 <= self.low < self.high <= RING_END, f"a bundle from {self.low:#x} to {self.high:#x}"
        object.__setattr__(self, "path", f"/namespace/{self.namespace}/{self.range}")

    @property
    def range(self) -> str:
        return f"0x{self.low:08x}_0x{self.high:08x}"

    def __contains__(self, place: object) -> bool:
        """Return whether a hash is in this bundle."""
        return isinstance(place, int) and (self.low <= place < self.high or place == self.high == RING_END)

    def has(self, name: TopicName) -> bool:
        """Return whether the topic is in this bundle."""
        return name.namespace_name == self.namespace and hash_of(name) in self

    def __str__(self) -> str:
        return f"{self.namespace}/{self.range}"


class Bundles:
    """The bundles of one namespace, in order, without gaps. Immutable."""

    __slots__ = ("_all", "_lows", "boundaries", "namespace")

    def __init__(self, namespace: NamespaceName, boundaries: Sequence[int]) -> None:
        """Take the boundaries: at least two, ascending, from 0 to RING_END. Raises ValueError."""
        if len(boundaries) < 2 or boundaries[0] != 0 or boundaries[-1] != RING_END:
            raise ValueError(f"the boundaries of {namespace} do not go from 0 to {RING_END:#x}")
        if any(low >= high for low, high in pairwise(boundaries)):
            raise ValueError(f"the boundaries of {namespace} are not ascending")
        self.namespace = namespace
        self.boundaries = tuple(boundaries)
        self._all = tuple(Bundle(namespace, low, high) for low, high in pairwise(boundaries))
        self._lows = self.boundaries[:-1]

    def find(self, name: TopicName) -> Bundle:
        """Return the topic's bundle."""
        return self.at(hash_of(name))

    def at(self, place: int) -> Bundle:
        """Return the bundle of a hash."""
        return self._all[bisect_right(self._lows, place) - 1]

    def all(self) -> tuple[Bundle, ...]:
        return self._all

    def bundle(self, text: str) -> Bundle:
        """Return the bundle of a range like 0x00000000_0x40000000. Raises NoSuchBundleError."""
        for bundle in self._all:
            if bundle.range == text.lower():
                return bundle
        raise NoSuchBundleError(f"namespace {self.namespace} has no bundle {text}")

    def __contains__(self, bundle: object) -> bool:
        return isinstance(bundle, Bundle) and bundle.namespace == self.namespace and self.at(bundle.low) == bundle

    def __len__(self) -> int:
        return len(self._all)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Bundles):
            return NotImplemented
        return (self.namespace, self.boundaries) == (other.namespace, other.boundaries)

    def __hash__(self) -> int:
        return hash((self.namespace, self.boundaries))

    def __repr__(self) -> str:
        return f"Bundles({self.namespace}, {[hex(each) for each in self.boundaries]})"

    def split(self, bundle: Bundle, at: Sequence[int]) -> Bundles:
        """Return these bundles with `bundle` cut at these hashes.

        Raises NoSuchBundleError, BundleSplitError (a cut that is not inside)."""
        if bundle not in self:
            raise NoSuchBundleError(f"namespace {self.namespace} has no bundle {bundle.range}")
        if not at or any(not bundle.low < cut < bundle.high for cut in at):
            raise BundleSplitError(f"{bundle} cannot be split at {[hex(cut) for cut in at]}")
        return Bundles(self.namespace, sorted({*self.boundaries, *at}))


def even(namespace: NamespaceName, count: int) -> Bundles:
    """Return `count` bundles of the same size, but for the last. Raises ValueError for an invalid count.

    >>> [bundle.range for bundle in even(NamespaceName("public", "default"), 2).all()]
    ['0x00000000_0x80000000', '0x80000000_0xffffffff']
    """
    if not 1 <= count <= RING_END:
        raise ValueError(f"a namespace cannot have {count} bundles")
    size = (RING_END + 1) // count
    return Bundles(namespace, [*(size * index for index in range(count)), RING_END])


def parse_boundary(text: str) -> int:
    """Parse a boundary as it is stored, `0x40000000`. Raises ValueError."""
    value = int(text, 16)
    if not 0 <= value <= RING_END:
        raise ValueError(f"{text} is not a boundary")
    return value


def parse_range(text: str) -> tuple[int, int]:
    """Return the ends of a range like 0x00000000_0x40000000. Raises ValueError."""
    low, separator, high = text.partition("_")
    if not separator:
        raise ValueError(f"{text} is not a bundle range")
    return parse_boundary(low), parse_boundary(high)


def split_points(
    bundle: Bundle,
    algorithm: str,
    *,
    positions: Iterable[int] = (),
    weights: Iterable[tuple[int, float]] = (),
) -> list[int]:
    """Return the places at which an algorithm of the original cuts the bundle.

    Raises BundleSplitError if there is no such place, or no such algorithm.

    Args:
        positions: the places for SPECIFIED_POSITIONS.
        weights: hash and rate of every topic in the bundle.
    """
    if algorithm == SPECIFIED_POSITIONS:
        cuts = sorted({cut for cut in positions if bundle.low < cut < bundle.high})
    elif algorithm == RANGE_EQUALLY:
        cuts = [bundle.low + (bundle.high - bundle.low) // 2]
    elif algorithm in (TOPIC_COUNT_EQUALLY, FLOW_EQUALLY):
        counted = algorithm == TOPIC_COUNT_EQUALLY
        cuts = _halves(sorted((place, 1.0 if counted else rate) for place, rate in weights))
    else:
        raise BundleSplitError(f"there is no split algorithm {algorithm}")
    cuts = [cut for cut in cuts if bundle.low < cut < bundle.high]
    if not cuts:
        raise BundleSplitError(f"{bundle} has no place where {algorithm} would split it")
    return cuts


def _halves(weighted: Sequence[tuple[int, float]]) -> list[int]:
    """Return a cut between two topics, with about half of the weight on either side; [] if there are not two."""
    total = sum(weight for _, weight in weighted)
    best: tuple[float, int] | None = None
    below = 0.0
    for (place, weight), (following, _) in pairwise(weighted):
        below += weight
        cut = place + (following - place + 1) // 2
        if cut > place and (best is None or abs(total - 2 * below) < best[0]):
            best = (abs(total - 2 * below), cut)
    return [] if best is None else [best[1]]

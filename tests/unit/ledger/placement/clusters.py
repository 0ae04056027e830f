"""Clusters for placement, and the results of an exhaustive search in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import permutations
from typing import Any

from hypothesis import strategies as st

from quire.ledger.placement.policy import Cluster, PlacementConfig


def cluster_of(racks: Sequence[str | None], **more: Any) -> Cluster:
    """Return one bookie per given rack, in that order: b00:3181, b01:3181, ...; None is a bookie without a rack."""
    ids = [f"b{number:02}:3181" for number in range(len(racks))]
    locations = {each: rack for each, rack in zip(ids, racks, strict=True) if rack is not None}
    return Cluster(writable=tuple(ids), locations=locations, **more)


def always(cluster: Cluster) -> Callable[[], Cluster]:
    return lambda: cluster


def racks_per_write_set(ensemble: Sequence[str], write_quorum: int, cluster: Cluster) -> int:
    """Return the number of racks of the least spread write set, counted directly."""
    size = len(ensemble)
    return min(
        len({cluster.locations.get(ensemble[(start + i) % size], "/default-rack") for i in range(write_quorum)})
        for start in range(size)
    )


def possible(candidates: Collection[str], size: int, good: Callable[[tuple[str, ...]], bool]) -> bool:
    """Return whether any ordered choice of `size` bookies is good."""
    return any(good(each) for each in permutations(candidates, size))


@st.composite
def small_clusters(draw: st.DrawFn) -> tuple[Cluster, int, int, PlacementConfig, int]:
    """Draw a cluster of at most 6 bookies, E, Qw, configuration and seed."""
    racks = draw(st.lists(st.sampled_from(["/a", "/b", "/c", "/d", None]), min_size=1, max_size=6))
    size = draw(st.integers(1, min(5, len(racks))))
    quorum = draw(st.integers(1, size))
    config = PlacementConfig(
        min_racks_per_write_quorum=draw(st.integers(1, 3)),
        enforce_min_racks_per_write_quorum=draw(st.booleans()),
        own_location=draw(st.sampled_from(["", "/a", "/z"])),
        disk_weighted=draw(st.booleans()),
    )
    return cluster_of(racks), size, quorum, config, draw(st.integers(0, 1 << 32))


class Health:
    """ReadHealth with values that the test sets."""

    def __init__(self, pending: dict[str, int] | None = None, failed: dict[str, float] | None = None) -> None:
        self._pending = pending or {}
        self._failed = failed or {}

    def pending(self, bookie_id: str) -> int:
        return self._pending.get(bookie_id, 0)

    def failed_at(self, bookie_id: str) -> float | None:
        return self._failed.get(bookie_id)

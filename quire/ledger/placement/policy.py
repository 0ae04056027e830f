"""EnsemblePlacementPolicy: the interface of policies that choose bookies; Cluster: their input. Values and contracts
only.

Source: BookKeeper's EnsemblePlacementPolicy, TopologyAwareEnsemblePlacementPolicy, ClientConfiguration.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol


class Adherence(Enum):
    """Degree to which an ensemble meets its policy."""

    FAIL = "FAIL"
    MEETS_SOFT = "MEETS_SOFT"
    """The hard requirements are met, the soft ones are not."""
    MEETS_STRICT = "MEETS_STRICT"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementConfig:
    """Configuration of placement. Each field names the originals' key.

    Raises:
        AssertionError: A value is out of its bounds.
    """

    policy: str = "rack-aware"
    """ensemblePlacementPolicy: `random`, `rack-aware`, `region-aware`, `zone-aware`, the original's class name, or
    `module:Class`.
    """
    min_racks_per_write_quorum: int = 2
    """minNumRacksPerWriteQuorum: racks over which every write set is spread; at most Qw are required."""
    enforce_min_racks_per_write_quorum: bool = False
    """enforceMinNumRacksPerWriteQuorum: fail instead of using fewer racks. Bookies without a rack are not used."""
    disk_weighted: bool = False
    """diskWeightBasedPlacementEnabled: a bookie is drawn in proportion to its weight (bytes free on its disks)."""
    max_weight_multiple: int = 3
    """bookieMaxWeightMultipleForWeightBasedPlacement: limit of a weight in multiples of the median; 0 for no limit."""
    desired_zones_per_write_quorum: int = 3
    """desiredNumZonesPerWriteQuorum: zones over which every write set is spread if possible; at most Qw."""
    min_zones_per_write_quorum: int = 2
    """minNumZonesPerWriteQuorum: zones that every write set has at least."""
    strict_zones: bool = True
    """enforceStrictZoneawarePlacement: false draws at random, also bookies without a zone."""
    own_location: str = ""
    """Location of this client, `/rack` or `/region/rack`; empty if unknown."""
    regions_to_write: tuple[str, ...] = ()
    """reppRegionsToWrite: the regions that copies go to; empty for all. A nonempty value turns the next bound on."""
    min_regions_for_durability: int = 2
    """reppMinimumRegionsForDurability: number of regions in every ack quorum; 0 or 1 requires nothing."""
    opportunistic_striping: bool = False
    """opportunisticStriping: an ensemble may have fewer than E bookies, down to Qw, if there are no more."""
    reorder_threshold_pending: int = 0
    """reorderThresholdPendingRequests: a bookie with this many requests more than the least busy one of the write set
    is slow; 0: only failures count.
    """

    def __post_init__(self) -> None:
        assert self.min_racks_per_write_quorum > 0, "minNumRacksPerWriteQuorum must be positive"
        assert self.min_zones_per_write_quorum > 0, "minNumZonesPerWriteQuorum must be positive"
        assert self.max_weight_multiple >= 0, "a bound on weights is not negative"
        assert self.reorder_threshold_pending >= 0, "a number of requests is not negative"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """State of the cluster at one moment. Immutable: each change creates a new one."""

    writable: tuple[str, ...]
    """Ids of the bookies that accept new entries, sorted, without those that are registered as read-only too."""
    read_only: frozenset[str] = frozenset()
    quarantined: frozenset[str] = frozenset()
    """Bookies that failed too often: chosen only if there are not enough others. Reads use them as usual."""
    locations: Mapping[str, str] = field(default_factory=dict)
    """Known locations of bookies, `/rack` or `/region/rack`; perhaps of unregistered ones too."""
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Bookies of each group of the rack map, whether or not they are registered."""
    weights: Mapping[str, int] = field(default_factory=dict)
    """Weights of bookies in a weighted draw, e.g. bytes free; 0 or missing counts as the least of the others."""
    members: frozenset[str] = field(init=False, repr=False, compare=False)
    """`writable` as a set, for lookups."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", frozenset(self.writable))


class ReadHealth(Protocol):
    """A reader's knowledge of the bookies it asked. `quire.ledger.bookies.health.BookieHealth` implements this."""

    def pending(self, bookie_id: str) -> int:
        """Return the number of requests that the bookie has not answered."""

    def failed_at(self, bookie_id: str) -> float | None:
        """Return the time, in trio's seconds, at which the bookie last failed or was overtaken.

        None if that is no reason to ask other bookies first (in the original, after 60 s).
        """


class EnsemblePlacementPolicy(Protocol):
    """Policy that chooses bookies. Nothing here waits; the same cluster and generator state give the same answer.

    A class of another package can be one (`ensemblePlacementPolicy=module:Class`). It is created as `Class(config:
    PlacementConfig, cluster: Callable[[], Cluster], rng: random.Random)`.
    """

    def new_ensemble(
        self,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        exclude: Collection[str] = (),
        custom_metadata: Sequence[tuple[str, bytes]] = (),
    ) -> tuple[str, ...]:
        """Return `ensemble_size` distinct writable bookies, none of `exclude`; NotEnoughBookiesError.

        With opportunistic striping there may be fewer, but at least `write_quorum`.
        """

    def replace_bookie(
        self,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        ensemble: Sequence[str],
        failed: Mapping[int, str],
        exclude: Collection[str] = (),
        custom_metadata: Sequence[tuple[str, bytes]] = (),
    ) -> tuple[str, ...]:
        """Return the ensemble with another writable bookie at each index of `failed` (index -> the bookie there).

        The new bookies are neither in the present ensemble nor in `exclude`; NotEnoughBookiesError.
        """

    def read_order(self, ensemble: Sequence[str], write_set: Sequence[int], health: ReadHealth) -> list[int]:
        """Return the indices of `write_set` in the order in which to ask their bookies.

        Equal ones keep the given order.
        """

    def adherence(self, ensemble: Sequence[str], write_quorum: int, ack_quorum: int) -> Adherence:
        """Return how well an ensemble meets the policy, by the current knowledge of its bookies."""

"""EnsemblePlacementPolicy: what chooses bookies; Cluster: what it chooses from. Values and contracts only.

Source: BookKeeper's EnsemblePlacementPolicy, TopologyAwareEnsemblePlacementPolicy, ClientConfiguration.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol


class Adherence(Enum):
    """How well an ensemble does what its policy wants."""

    FAIL = "FAIL"
    MEETS_SOFT = "MEETS_SOFT"
    """What must be is met, what should be is not."""
    MEETS_STRICT = "MEETS_STRICT"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementConfig:
    """What an operator says about placement. The names of the originals' keys stand with the fields."""

    policy: str = "rack-aware"
    """ensemblePlacementPolicy: `random`, `rack-aware`, `region-aware`, the original's class name, or `module:Class`."""
    min_racks_per_write_quorum: int = 2
    """minNumRacksPerWriteQuorum: racks over which every write set is spread; at most Qw of them are asked for."""
    enforce_min_racks_per_write_quorum: bool = False
    """enforceMinNumRacksPerWriteQuorum: rather no ensemble than one on fewer racks. Bookies without a rack are not used."""
    disk_weighted: bool = False
    """diskWeightBasedPlacementEnabled: a bookie is drawn in proportion to its weight (bytes free on its disks)."""
    max_weight_multiple: int = 3
    """bookieMaxWeightMultipleForWeightBasedPlacement: no weight counts for more than so many medians; 0 is no bound."""
    own_location: str = ""
    """Where this client is, `/rack` or `/region/rack`; empty if not known."""
    regions_to_write: tuple[str, ...] = ()
    """reppRegionsToWrite: the regions that copies go to; empty for all. Naming them turns the next bound on."""
    min_regions_for_durability: int = 2
    """reppMinimumRegionsForDurability: so many regions take part in every ack quorum; 0 or 1 asks for nothing."""
    opportunistic_striping: bool = False
    """opportunisticStriping: an ensemble may have fewer than E bookies, down to Qw, if there are no more."""
    reorder_threshold_pending: int = 0
    """reorderThresholdPendingRequests: a bookie with so many requests more than the least busy one of the write set is
    slow; 0 looks at failures only."""

    def __post_init__(self) -> None:
        assert self.min_racks_per_write_quorum > 0, "minNumRacksPerWriteQuorum is positive"
        assert self.max_weight_multiple >= 0, "a bound on weights is not negative"
        assert self.reorder_threshold_pending >= 0, "a number of requests is not negative"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Who is there, at one moment. Never changed: a new one is made when something changes."""

    writable: tuple[str, ...]
    """Ids of the bookies that take new entries, sorted, without those that are read-only too."""
    read_only: frozenset[str] = frozenset()
    quarantined: frozenset[str] = frozenset()
    """Bookies that failed too often: chosen only if it does not go without them. Read as others are."""
    locations: Mapping[str, str] = field(default_factory=dict)
    """`/rack` or `/region/rack` of the bookies of which it is known; perhaps of others too."""
    weights: Mapping[str, int] = field(default_factory=dict)
    """What bookies weigh in a weighted draw, e.g. bytes free; 0 or missing counts as the least of the others."""
    members: frozenset[str] = field(init=False, repr=False, compare=False)
    """`writable`, to look ids up."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", frozenset(self.writable))


class ReadHealth(Protocol):
    """What a reader knows of bookies it asked. `quire.ledger.bookies.health.BookieHealth` is one."""

    def pending(self, bookie_id: str) -> int:
        """Requests that the bookie has not answered."""

    def failed_at(self, bookie_id: str) -> float | None:
        """When, in trio's seconds, the bookie last failed or was overtaken, if that is a reason to ask others first (60 s
        in the original); None otherwise."""


class EnsemblePlacementPolicy(Protocol):
    """Chooses bookies. Nothing here waits; the same cluster and the same state of the generator give the same answer.

    A class of another package can be one (`ensemblePlacementPolicy=module:Class`); it is made as
    `Class(config: PlacementConfig, cluster: Callable[[], Cluster], rng: random.Random)`.
    """

    def new_ensemble(
        self,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        exclude: Collection[str] = (),
        custom_metadata: Sequence[tuple[str, bytes]] = (),
    ) -> tuple[str, ...]:
        """`ensemble_size` distinct writable bookies (with opportunistic striping perhaps fewer, `write_quorum` at least),
        none of `exclude`; NotEnoughBookiesError."""

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
        """The ensemble with another writable bookie at each index of `failed` (index -> the bookie there), nobody of the
        present ensemble nor of `exclude`; NotEnoughBookiesError."""

    def read_order(self, ensemble: Sequence[str], write_set: Sequence[int], health: ReadHealth) -> list[int]:
        """The indices of `write_set` in the order in which their bookies are asked; the order given stays among equals."""

    def adherence(self, ensemble: Sequence[str], write_quorum: int, ack_quorum: int) -> Adherence:
        """How well an ensemble fits the policy, by what is known of its bookies now."""

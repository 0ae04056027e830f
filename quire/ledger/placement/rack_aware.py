"""RackAwarePolicy: places every write set on several racks, so that the loss of one rack loses no entry.

Why this is hard: write sets overlap and wrap around, so the choice for one place constrains all others. A greedy draw
can end without a valid bookie for the last place although an ensemble exists.

A new ensemble: the first bookie in the own rack, if that is known; each next one not in a rack of the
min(minNumRacksPerWriteQuorum, Qw) - 1 before it. Every write set spans that many racks, also those that wrap around. If
that is impossible, it spans as many as possible; with enforcement it fails, and bookies without a rack are not used.

A replacement: among the bookies that keep the write sets spread as far as possible, one in the rack of the failed
bookie, else one in a rack without another member of the ensemble, else any.

Source: BookKeeper's RackawareEnsemblePlacementPolicyImpl, TopologyAwareEnsemblePlacementPolicy. The original draws
place by place without backtracking. It rates a single-rack cluster as FAIL, and so do we.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from quire.ledger.errors import NotEnoughBookiesError
from quire.ledger.placement.drawing import candidates, check_candidates, shuffled
from quire.ledger.placement.policy import Adherence, Cluster, PlacementConfig, ReadHealth
from quire.ledger.placement.random_policy import check_replacements, with_replacements
from quire.ledger.placement.reading import read_order
from quire.ledger.placement.search import Labels, Prefer, Search, covers, windows
from quire.ledger.placement.topology import DEFAULT_RACK, DEFAULT_REGION_AND_RACK
from quire.world.doors import Rng


class RackAwarePolicy:
    """Placement policy over racks; a rack is a whole location, `/rack` or `/region/rack`."""

    def __init__(self, config: PlacementConfig, cluster: Callable[[], Cluster], rng: Rng) -> None:
        self._config = config
        self._cluster = cluster
        self._rng = rng

    def new_ensemble(
        self,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        exclude: Collection[str] = (),
        custom_metadata: Sequence[tuple[str, bytes]] = (),
    ) -> tuple[str, ...]:
        cluster = self._cluster()
        pool = self._pool(cluster, exclude)
        check_candidates(ensemble_size, pool)
        return tuple(choose_racks(pool, cluster, ensemble_size, write_quorum, self._config))

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
        cluster = self._cluster()
        pool = self._pool(cluster, [*exclude, *ensemble])
        check_replacements(len(failed), len(pool))
        racks = racks_of(ensemble, cluster)
        labels: Labels = [None if index in failed else rack for index, rack in enumerate(racks)]
        goal = racks_wanted(write_quorum, self._config)
        at_least = goal if self._config.enforce_min_racks_per_write_quorum else 1

        def prefer(place: int, labels: Labels, rack: str) -> tuple[int, ...]:
            return (rack != racks[place], rack in labels)

        chosen = most_spread(labels, pool, racks_of(pool, cluster), write_quorum, goal, at_least, prefer)
        return with_replacements(ensemble, failed, chosen)

    def read_order(self, ensemble: Sequence[str], write_set: Sequence[int], health: ReadHealth) -> list[int]:
        return read_order(self._cluster(), ensemble, write_set, health, self._config.reorder_threshold_pending)

    def adherence(self, ensemble: Sequence[str], write_quorum: int, ack_quorum: int) -> Adherence:
        return rack_adherence(ensemble, self._cluster(), write_quorum, self._config)

    def _pool(self, cluster: Cluster, exclude: Collection[str]) -> list[str]:
        """Return the bookies that may be chosen, in the order of a draw."""
        bookie_ids = candidates(cluster, exclude)
        if self._config.enforce_min_racks_per_write_quorum:
            bookie_ids = [each for each in bookie_ids if not is_default(rack_of(each, cluster))]
        return shuffled(bookie_ids, cluster, self._config, self._rng)


def rack_of(bookie_id: str, cluster: Cluster) -> str:
    """Return the location of a bookie; the default rack if it is unknown."""
    return cluster.locations.get(bookie_id, DEFAULT_RACK)


def racks_of(bookie_ids: Iterable[str], cluster: Cluster) -> list[str]:
    locations = cluster.locations
    return [locations.get(each, DEFAULT_RACK) for each in bookie_ids]


def is_default(rack: str) -> bool:
    return rack in (DEFAULT_RACK, DEFAULT_REGION_AND_RACK)


def racks_wanted(write_quorum: int, config: PlacementConfig) -> int:
    """Return the number of racks for each write set."""
    return min(write_quorum, config.min_racks_per_write_quorum)


def choose_racks(
    pool: Sequence[str], cluster: Cluster, ensemble_size: int, write_quorum: int, config: PlacementConfig
) -> list[str]:
    """Choose a new ensemble from `pool`, which is in the order of a draw and large enough; NotEnoughBookiesError if
    enforced.
    """
    goal = racks_wanted(write_quorum, config)
    own = config.own_location

    def prefer(place: int, labels: Labels, rack: str) -> tuple[int, ...]:
        if place == 0:
            return (rack != own,)
        return (rack in labels[max(0, place - goal + 1) : place],)

    at_least = goal if config.enforce_min_racks_per_write_quorum else 1
    racks = racks_of(pool, cluster)
    return most_spread([None] * ensemble_size, pool, racks, write_quorum, goal, at_least, prefer)


def most_spread(
    labels: Labels,
    pool: Sequence[str],
    racks: Sequence[str],
    write_quorum: int,
    goal: int,
    at_least: int,
    prefer: Prefer,
) -> list[str]:
    """Choose bookies of `pool`, whose racks are `racks`, for the open places of `labels`.

    Every affected write set gets `goal` racks, or as many as possible; NotEnoughBookiesError if that is fewer than
    `at_least`.
    """
    queues: dict[str, list[int]] = {}
    for rank, rack in enumerate(racks):
        queues.setdefault(rack, []).append(rank)
    known = len({*queues, *(rack for rack in labels if rack is not None)})
    for racks_each in range(min(goal, max(known, at_least)), at_least - 1, -1):
        ranks = Search(labels, queues, write_quorum, covers(racks_each), prefer).run()
        if ranks is not None:
            return [pool[rank] for rank in ranks]
    raise NotEnoughBookiesError(
        f"{len(pool)} bookies on {len(queues)} racks are available: no write set of {write_quorum} of them spans "
        f"{at_least} racks as minNumRacksPerWriteQuorum, which is enforced, demands"
    )


def rack_adherence(ensemble: Sequence[str], cluster: Cluster, write_quorum: int, config: PlacementConfig) -> Adherence:
    """Return MEETS_STRICT if every write set spans the wanted racks (and, with enforcement, none has a bookie without a
    rack), otherwise FAIL.
    """
    racks = racks_of(ensemble, cluster)
    if config.enforce_min_racks_per_write_quorum and any(map(is_default, racks)):
        return Adherence.FAIL
    fits = covers(racks_wanted(write_quorum, config))
    return Adherence.MEETS_STRICT if all(map(fits, windows(racks, write_quorum))) else Adherence.FAIL

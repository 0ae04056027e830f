"""RandomPolicy: chooses random bookies among the available ones, whatever their location.

Source: BookKeeper's DefaultEnsemblePlacementPolicy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from quire.ledger.errors import NotEnoughBookiesError
from quire.ledger.placement.drawing import candidates, check_candidates, shuffled
from quire.ledger.placement.policy import Adherence, Cluster, PlacementConfig, ReadHealth
from quire.ledger.placement.reading import read_order
from quire.world.doors import Rng


class RandomPolicy:
    """Placement policy that every ensemble meets."""

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
        bookie_ids = candidates(cluster, exclude)
        if not self._config.disk_weighted:
            return choose_ensemble(bookie_ids, ensemble_size, self._rng)
        check_candidates(ensemble_size, bookie_ids)
        return tuple(shuffled(bookie_ids, cluster, self._config, self._rng)[:ensemble_size])

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
        if not self._config.disk_weighted:
            return replace_bookies(cluster.writable, ensemble, failed, self._rng, avoid=exclude)
        bookie_ids = candidates(cluster, [*exclude, *ensemble])
        return with_replacements(ensemble, failed, shuffled(bookie_ids, cluster, self._config, self._rng))

    def read_order(self, ensemble: Sequence[str], write_set: Sequence[int], health: ReadHealth) -> list[int]:
        return read_order(self._cluster(), ensemble, write_set, health, self._config.reorder_threshold_pending)

    def adherence(self, ensemble: Sequence[str], write_quorum: int, ack_quorum: int) -> Adherence:
        return Adherence.MEETS_STRICT


def choose_ensemble(available: Iterable[str], size: int, rng: Rng) -> tuple[str, ...]:
    """Return `size` distinct bookies in random order; NotEnoughBookiesError."""
    bookie_ids = sorted(set(available))
    check_candidates(size, bookie_ids)
    return tuple(rng.sample(bookie_ids, size))


def replace_bookies(
    available: Iterable[str],
    ensemble: Sequence[str],
    failed: Collection[int],
    rng: Rng,
    *,
    avoid: Collection[str] = (),
) -> tuple[str, ...]:
    """Return the ensemble with another bookie at each index in `failed`; NotEnoughBookiesError.

    Members of the ensemble and bookies in `avoid` (failed a moment ago) are not chosen.
    """
    bookie_ids = sorted(set(available) - {*ensemble, *avoid})
    return with_replacements(ensemble, failed, rng.sample(bookie_ids, min(len(failed), len(bookie_ids))))


def with_replacements(ensemble: Sequence[str], failed: Collection[int], chosen: Sequence[str]) -> tuple[str, ...]:
    """Return the ensemble with the first of `chosen` at the indices of `failed`, in order; NotEnoughBookiesError."""
    check_replacements(len(failed), len(chosen))
    changed = list(ensemble)
    for index, bookie_id in zip(sorted(failed), chosen, strict=False):
        changed[index] = bookie_id
    return tuple(changed)


def check_replacements(failed: int, others: int) -> None:
    """Raise NotEnoughBookiesError if more bookies failed than there are others."""
    if others < failed:
        raise NotEnoughBookiesError(f"{failed} bookies of the ensemble failed, {others} others are available")

"""Drawing bookies at random: uniformly, or in proportion to their weights. Pure, given the generator.

Candidates are sorted before the draw, so that the same seed draws the same bookies whatever the input order.

Source of the bounds on weights: BookKeeper's WeightedRandomSelectionImpl.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from quire.ledger.errors import NotEnoughBookiesError
from quire.ledger.placement.policy import Cluster, PlacementConfig
from quire.world.doors import Rng


def candidates(cluster: Cluster, exclude: Collection[str]) -> list[str]:
    """Return the bookies that may be chosen, sorted."""
    if not exclude:
        return list(cluster.writable)
    excluded = frozenset(exclude)
    return [each for each in cluster.writable if each not in excluded]


def shuffled(bookie_ids: Sequence[str], cluster: Cluster, config: PlacementConfig, rng: Rng) -> list[str]:
    """Return all bookies in the order in which they are drawn, without replacement."""
    if not config.disk_weighted:
        return rng.sample(bookie_ids, len(bookie_ids))
    weights = draw_weights([cluster.weights.get(each, 0) for each in bookie_ids], config.max_weight_multiple)
    # Drawing an exponential variable with rate w for each bookie and sorting by it is a weighted draw without
    # replacement: the least one belongs to each bookie with probability w / sum.
    ends = [rng.expovariate(weight) for weight in weights]
    return [bookie_id for _, bookie_id in sorted(zip(ends, bookie_ids, strict=True))]


def draw_weights(weights: Sequence[int], max_multiple: int) -> list[float]:
    """Return the weights used in a draw: 0 becomes the least positive weight, and no weight exceeds `max_multiple`
    medians.

    >>> draw_weights([0, 10, 20, 400], 3)
    [10.0, 10.0, 20.0, 45.0]
    """
    least = min((weight for weight in weights if weight > 0), default=1)
    if not any(weight > 0 for weight in weights):
        return [1.0] * len(weights)
    from statistics import median  # only here: it takes longer to import than the rest of placement

    bound = max_multiple * median(weights)
    counted = [float(weight if weight > 0 else least) for weight in weights]
    return [min(weight, bound) for weight in counted] if bound > 0 else counted


def check_candidates(wanted: int, bookie_ids: Sequence[str]) -> None:
    """Raise NotEnoughBookiesError if there are fewer candidates than an ensemble needs."""
    if len(bookie_ids) < wanted:
        raise NotEnoughBookiesError(f"an ensemble of {wanted} needs {wanted} bookies, {len(bookie_ids)} are available")

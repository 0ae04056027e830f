"""Drawing bookies at random: all alike, or in proportion to what they weigh. Pure, given the generator.

Candidates are sorted before the draw, so that the same seed draws the same bookies whatever order they came in.

Source of the bounds on weights: BookKeeper's WeightedRandomSelectionImpl.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median

from quire.ledger.errors import NotEnoughBookiesError
from quire.ledger.placement.policy import Cluster, PlacementConfig
from quire.world.doors import Rng


def candidates(cluster: Cluster, exclude: Collection[str]) -> list[str]:
    """The bookies that may be chosen, sorted."""
    if not exclude:
        return list(cluster.writable)
    excluded = frozenset(exclude)
    return [each for each in cluster.writable if each not in excluded]


def shuffled(bookie_ids: Sequence[str], cluster: Cluster, config: PlacementConfig, rng: Rng) -> list[str]:
    """All of them in the order in which they are drawn, without putting back."""
    if not config.disk_weighted:
        return rng.sample(bookie_ids, len(bookie_ids))
    weights = draw_weights([cluster.weights.get(each, 0) for each in bookie_ids], config.max_weight_multiple)
    # The exponential with rate w that ends first is each one's with probability w / sum: a draw without putting back.
    ends = [rng.expovariate(weight) for weight in weights]
    return [bookie_id for _, bookie_id in sorted(zip(ends, bookie_ids, strict=True))]


def draw_weights(weights: Sequence[int], max_multiple: int) -> list[float]:
    """What counts in a draw: nothing counts as the least there is, and nobody for more than `max_multiple` medians.

    >>> draw_weights([0, 10, 20, 400], 3)
    [10.0, 10.0, 20.0, 45.0]
    """
    least = min((weight for weight in weights if weight > 0), default=1)
    if not any(weight > 0 for weight in weights):
        return [1.0] * len(weights)
    bound = max_multiple * median(weights)
    counted = [float(weight if weight > 0 else least) for weight in weights]
    return [min(weight, bound) for weight in counted] if bound > 0 else counted


def check_candidates(wanted: int, bookie_ids: Sequence[str]) -> None:
    """NotEnoughBookiesError if there are fewer candidates than an ensemble needs."""
    if len(bookie_ids) < wanted:
        raise NotEnoughBookiesError(f"an ensemble of {wanted} needs {wanted} bookies, {len(bookie_ids)} are available")

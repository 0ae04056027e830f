"""Choice of an ensemble and of replacements: at random among the bookies that are available. Pure, given the generator.

The lists are sorted before the draw, so that the same seed chooses the same bookies whatever order they were announced in.
"""

from __future__ import annotations

import random  # noqa: TID251 - the type only; instances are handed down
from collections.abc import Collection, Iterable, Sequence

from quire.ledger.errors import NotEnoughBookiesError


def choose_ensemble(available: Iterable[str], size: int, rng: random.Random) -> tuple[str, ...]:
    """`size` distinct bookies in random order; NotEnoughBookiesError."""
    candidates = sorted(set(available))
    if len(candidates) < size:
        raise NotEnoughBookiesError(f"an ensemble of {size} needs {size} bookies, {len(candidates)} are available")
    return tuple(rng.sample(candidates, size))


def replace_bookies(
    available: Iterable[str],
    ensemble: Sequence[str],
    failed: Collection[int],
    rng: random.Random,
    *,
    avoid: Collection[str] = (),
) -> tuple[str, ...]:
    """The ensemble with another bookie at each index in `failed`; NotEnoughBookiesError.

    Nobody who is in the ensemble, or in `avoid` (failed a moment ago), is chosen.
    """
    excluded = {*ensemble, *avoid}
    candidates = sorted(set(available) - excluded)
    indices = sorted(failed)
    if len(candidates) < len(indices):
        raise NotEnoughBookiesError(
            f"{len(indices)} bookies of the ensemble failed, {len(candidates)} others are available"
        )
    changed = list(ensemble)
    for index, bookie_id in zip(indices, rng.sample(candidates, len(indices)), strict=True):
        changed[index] = bookie_id
    return tuple(changed)

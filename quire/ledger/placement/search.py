"""Search for bookies to fill the open places of an ensemble, so that every write set is spread as required. Pure.

Why this is hard: write sets overlap and wrap around, so a label fits a place only together with its neighbours, and
exhaustive search is exponential in the ensemble size.

Places get labels (racks or regions) in an order of preference. If a place cannot get any, the search goes back to the
place before it and tries its next label. The original's greedy choice misses ensembles that exist (of racks a a b with
Qw = 2 and E = 3 it may draw the two of a first).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

Labels: TypeAlias = Sequence[str | None]
Fits: TypeAlias = Callable[[Labels], bool]
"""Test whether a write set can still meet the requirement; its open places are None."""
Prefer: TypeAlias = Callable[[int, Labels, str], tuple[int, ...]]
"""Key that orders labels at a place, the least first: (place, labels so far, label)."""

STEPS_MAX = 1_000
"""Labels tried before an attempt ends: some milliseconds, and far more than ensembles of usual sizes need."""


def windows(labels: Labels, write_quorum: int) -> list[list[str | None]]:
    """Return the write sets of an ensemble, one per rotation.

    >>> windows(["a", "b", None], 2)
    [['a', 'b'], ['b', None], [None, 'a']]
    """
    size = len(labels)
    if write_quorum == size:
        return [list(labels)]
    return [[labels[(start + i) % size] for i in range(write_quorum)] for start in range(size)]


def covers(goal: int) -> Fits:
    """Return a test for at least `goal` distinct labels in a write set.

    >>> covers(2)(["a", "a"]), covers(2)(["a", None])
    (False, True)
    """

    def fits(labels: Labels) -> bool:
        distinct = set(labels)
        if None in distinct:
            return len(distinct) - 1 + labels.count(None) >= goal
        return len(distinct) >= goal

    return fits


class Search:
    """Search in two attempts.

    If the first attempt reaches its limit, the second prefers the labels with the most candidates left, because
    plentiful labels must be used early. Only write sets with an open place are tested. `queues` gives, for each label,
    the ranks of the candidates that have it, ascending: among equally preferred labels the one with the smallest next
    rank is tried first.
    """

    def __init__(
        self,
        labels: Labels,
        queues: Mapping[str, Sequence[int]],
        write_quorum: int,
        fits: Fits,
        prefer: Prefer,
    ) -> None:
        self._labels = list(labels)
        self._open = [place for place, label in enumerate(labels) if label is None]
        self._queues = queues
        self._used = dict.fromkeys(queues, 0)
        self._write_quorum = write_quorum
        self._fits = fits
        self._prefer = prefer
        self._steps = STEPS_MAX
        self._largest_first = False
        self._dead: set[tuple[object, ...]] = set()

    def run(self) -> list[int] | None:
        """Return the ranks of the candidates for the open places, in order; None if none was found."""
        if not self._fill(0):
            if self._steps:
                return None
            self._steps, self._largest_first = STEPS_MAX, True
            self._dead.clear()
            if not self._fill(0):
                return None
        taken = dict.fromkeys(self._queues, 0)
        ranks = []
        for place in self._open:
            label = self._labels[place]
            assert label is not None, "a filled place has a label"
            ranks.append(self._queues[label][taken[label]])
            taken[label] += 1
        return ranks

    def _fill(self, depth: int) -> bool:
        if depth == len(self._open):
            return True
        state = self._state(depth)
        if state in self._dead:
            return False
        place = self._open[depth]
        for label in self._choices(place):
            if self._steps == 0:
                return False
            self._steps -= 1
            self._labels[place] = label
            self._used[label] += 1
            if self._fit_at(place) and self._fill(depth + 1):
                return True
            self._used[label] -= 1
            self._labels[place] = None
        self._dead.add(state)
        return False

    def _choices(self, place: int) -> list[str]:
        used = self._used
        keyed = [
            (
                (used[label] - len(queue),) if self._largest_first else self._prefer(place, self._labels, label),
                queue[used[label]],
                label,
            )
            for label, queue in self._queues.items()
            if used[label] < len(queue)
        ]
        keyed.sort()  # ranks are unique
        return [label for _, _, label in keyed]

    def _fit_at(self, place: int) -> bool:
        """Return whether every write set with this place is still possible."""
        labels, size, quorum = self._labels, len(self._labels), self._write_quorum
        if quorum == size:
            return self._fits(labels)
        return all(
            self._fits([labels[(start + i) % size] for i in range(quorum)])
            for start in range(place - quorum + 1, place + 1)
        )

    def _state(self, depth: int) -> tuple[object, ...]:
        """Return the state that the rest of the search depends on: the labels near the open places, and the remaining
        candidates.
        """
        reach = self._write_quorum - 1
        place = self._open[depth]
        near = tuple(self._labels[max(0, place - reach) : place]), tuple(self._labels[:reach])
        return depth, near, tuple(self._used.values())

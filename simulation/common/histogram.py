"""Histogram of the faults of a sweep, as text and as a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

WIDTH = 50
"""Characters of the longest bar."""


class Histogram:
    """Sums of faults over histories."""

    def __init__(self) -> None:
        self.histories = 0
        """Number of histories that counted faults."""
        self.counts: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        """Number of histories with each kind."""

    def add(self, faults: Iterable[tuple[str, int]]) -> None:
        """Add the faults of one history, by kind; nothing if it counts none."""
        counts = dict(faults)
        self.histories += bool(counts)
        self.counts.update(counts)
        self.seen.update(dict.fromkeys(counts, 1))

    def text(self) -> str:
        """Return one line for each kind.

        >>> histogram = Histogram()
        >>> histogram.add([("crash", 2), ("pause", 1)])
        >>> print(histogram.text())
        faults of 1 histories:
        crash               2 in    1  ##################################################
        pause               1 in    1  #########################
        """
        most = max(self.counts.values(), default=1)
        lines = [f"faults of {self.histories} histories:"]
        for kind, count in self.counts.most_common():
            bar = "#" * max(1, count * WIDTH // most)
            lines.append(f"{kind:15} {count:5} in {self.seen[kind]:4}  {bar}")
        return "\n".join(lines)

    def draw(self, path: Path) -> None:
        """Return the same as a PNG."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        kinds = [kind for kind, _ in reversed(self.counts.most_common())]
        figure, axes = pyplot.subplots(figsize=(9, 0.35 * len(kinds) + 1.2))
        axes.barh(kinds, [self.counts[kind] for kind in kinds], color="#4878a8")
        axes.set_xlabel(f"faults in {self.histories} histories")
        for number, kind in enumerate(kinds):
            axes.text(self.counts[kind], number, f" {self.counts[kind]}", va="center", fontsize=8)
        figure.tight_layout()
        figure.savefig(path, dpi=110)
        pyplot.close(figure)

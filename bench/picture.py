"""Ratios to the other server as bars on a logarithmic scale, with the expected ones."""

from __future__ import annotations

from pathlib import Path


def draw(
    rows: list[tuple[str, float, float, str]],
    path: Path,
    label: str = "Quire / Apache Pulsar (1.0 = equal; black mark: expected)",
) -> None:
    """Write a PNG. `rows` are (title, ratio, expected, "more" or "less"); the other server is 1.0."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10, 0.38 * len(rows) + 1.2))
    for place, (_, ratio, expected, better) in enumerate(reversed(rows)):
        good = ratio >= expected if better == "more" else ratio <= expected
        axes.barh(place, ratio, color="#2a7f62" if good else "#c0392b", height=0.6)
        axes.plot([expected, expected], [place - 0.4, place + 0.4], color="black", linewidth=1.5)
        axes.text(ratio, place, f" {ratio:.2f}", va="center", fontsize=8)
    titles = [f"{title} ({'more' if better == 'more' else 'less'} is better)" for title, _, _, better in reversed(rows)]
    axes.set_yticks(range(len(rows)), titles, fontsize=8)
    axes.set_xscale("log")
    axes.axvline(1.0, color="grey", linewidth=0.8)
    axes.set_xlabel(label)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)

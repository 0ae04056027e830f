"""Verdicts on a damaged server's handling of acknowledged data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from tests.support.damage.places import Case


class Verdict(Enum):
    RIGHT = "right"
    """All acknowledged data exist and are right."""
    REFUSED = "refused"
    """The start was refused with an error that names the file."""
    ERROR = "error"
    """Missing data are answered with an error."""
    TAIL = "tail dropped"
    """The end of the journal was taken for an unsynced tail, which the log names."""
    UNNAMED = "REFUSED UNNAMED"
    FALSE = "FALSE REFUSAL"
    ALARM = "FALSE ALARM"
    """All data are right, and `quire doctor` reports damage."""
    MISSED = "DOCTOR MISSED IT"
    """`quire doctor` reports no damage, and the server refuses to start or to read some data."""
    CRASHED = "CRASHED"
    """A traceback, a signal, or no end."""
    SILENT = "SILENT LOSS"
    WRONG = "WRONG DATA"
    """Other bytes, an acknowledged message delivered again, an id used twice, or a fence undone."""


GOOD = (Verdict.RIGHT, Verdict.REFUSED, Verdict.ERROR)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Verdict on a case. `done` describes the damage, `detail` the first observation."""

    verdict: Verdict
    detail: str
    done: str = ""


def table(outcomes: Iterable[tuple[Case, Outcome]]) -> str:
    """Return a table of kinds of files by the verdicts that occur."""
    counts: Counter[tuple[str, Verdict]] = Counter()
    for case, outcome in outcomes:
        counts[case.place.kind, outcome.verdict] += 1
    verdicts = [verdict for verdict in Verdict if any(found is verdict for _, found in counts)]
    kinds = sorted({kind for kind, _ in counts})
    width = max(map(len, kinds), default=0)
    lines = [" " * width + "".join(f"  {verdict.value}" for verdict in verdicts)]
    for kind in kinds:
        cells = "".join(f"{counts[kind, verdict] or '':>{len(verdict.value) + 2}}" for verdict in verdicts)
        lines.append(kind.ljust(width) + cells)
    totals = (sum(counts[kind, verdict] for kind in kinds) for verdict in verdicts)
    lines.append(
        "all".ljust(width) + "".join(f"{n:>{len(v.value) + 2}}" for n, v in zip(totals, verdicts, strict=True))
    )
    return "\n".join(lines)

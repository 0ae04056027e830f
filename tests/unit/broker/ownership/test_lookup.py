"""The whole table of a lookup's answers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

from broker.ownership.lookup import Chosen, Has, Leader, decide
from tests.support.datadriven import Line, check, read

CALLS = [dict(zip(("authoritative", "stopping"), call, strict=True)) for call in product((False, True), repeat=2)]
COLUMNS = ["plain", "stopping", "authoritative", "authoritative and stopping"]


def table(command: Line, steps: Sequence[Line]) -> list[str]:
    """Return a line for each leader and chosen broker, with the step for each kind of call; one line if all agree."""
    has = Has[command.word()]
    rows = {
        f"leader {leader.name}, chosen {chosen.name}": [
            decide(has, leader=leader, chosen=chosen, **call).name for call in CALLS
        ]
        for leader, chosen in product(Leader, Chosen)
    }
    if len({*map(tuple, rows.values())}) == 1:
        rows = {"always": next(iter(rows.values()))}
        if len({*rows["always"]}) == 1:
            return [f"always: {rows['always'][0]}"]
    lines = [["", *COLUMNS], *([name, *row] for name, row in rows.items())]
    return [
        " | ".join(cell.ljust(30 if number == 0 else 18) for number, cell in enumerate(row)).rstrip() for row in lines
    ]


def test_every_lookup_has_the_answer_of_the_table() -> None:
    path = Path(__file__).parent / "testdata" / "lookup.txt"
    check(path, table)
    assert [case.lines[0].text for case in read(path)] == [f"bundle {has.name}" for has in Has]

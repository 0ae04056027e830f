"""broker.ends: the tables, and every order of ends."""

from __future__ import annotations

from itertools import product

import pytest

from broker.ends import CONSUMER, PRODUCER, Do, End, Life, Table, after

PRODUCERS = """
OPEN     CLIENT    CLOSING  FORGET|RELEASE
OPEN     FAILED    CLOSING  FORGET|RELEASE
OPEN     FENCED    CLOSING  FORGET|RELEASE|DRAIN
OPEN     BLOCKED   CLOSING  FORGET|RELEASE|DRAIN
OPEN     UNLOADED  CLOSING  FORGET|RELEASE|DRAIN
OPEN     CUT       GONE     FORGET|TELL|RELEASE
OPEN     LOST      GONE     RELEASE
CLOSING  CLIENT    CLOSING  -
CLOSING  FAILED    CLOSING  -
CLOSING  FENCED    CLOSING  -
CLOSING  BLOCKED   CLOSING  -
CLOSING  UNLOADED  CLOSING  -
CLOSING  CUT       GONE     TELL
CLOSING  LOST      GONE     -
GONE     CLIENT    GONE     -
GONE     FAILED    GONE     -
GONE     FENCED    GONE     -
GONE     BLOCKED   GONE     -
GONE     UNLOADED  GONE     -
GONE     CUT       GONE     -
GONE     LOST      GONE     -
"""
CONSUMERS = """
OPEN     CLIENT    GONE     FORGET|RELEASE
OPEN     CUT       CLOSING  FORGET|TELL
OPEN     LOST      GONE     RELEASE
CLOSING  CLIENT    CLOSING  -
CLOSING  CUT       CLOSING  -
CLOSING  LOST      GONE     RELEASE
GONE     CLIENT    GONE     -
GONE     CUT       GONE     -
GONE     LOST      GONE     -
"""
TABLES = {"producer": (PRODUCER, PRODUCERS), "consumer": (CONSUMER, CONSUMERS)}


def rows() -> list[tuple[Table, list[str]]]:
    return [(table, line.split()) for table, text in TABLES.values() for line in text.strip().splitlines()]


@pytest.mark.parametrize(("table", "row"), rows(), ids=[" ".join(row[:2]) for _, row in rows()])
def test_each_state_and_end_has_its_row(table: Table, row: list[str]) -> None:
    life, end, then, wanted = row
    done = Do.NOTHING
    for name in wanted.strip("-").split("|"):
        done |= Do[name] if name else Do.NOTHING
    assert after(table, Life[life], End[end]) == (Life[then], done)


@pytest.mark.parametrize("name", TABLES)
def test_in_every_order_of_ends_each_thing_is_done_once_at_most(name: str) -> None:
    table = TABLES[name][0]
    for ends in product(End, repeat=4):
        life, seen = Life.OPEN, Do.NOTHING
        for end in ends:
            before = life
            life, done = after(table, life, end)
            assert not seen & done, ends
            assert before.value <= life.value, "no state comes again"
            seen |= done
        if life is Life.GONE:
            assert Do.RELEASE in seen, ends
        if Do.TELL in seen:
            assert Do.FORGET in seen, ends

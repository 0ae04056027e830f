"""docs/faults.md has every row that it must have, and the tests that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.damage.page import promises, row_of
from tests.support.damage.places import Damage, kind_of
from tests.support.damage.verdicts import GOOD

CHECKOUT = Path(__file__).parents[2]
PAGE = (CHECKOUT / "docs/faults.md").read_text()
ROWS = {
    *(f"M{number}" for number in range(1, 16)),
    *(f"N{number}" for number in range(1, 11)),
    *(f"O{number}" for number in range(1, 10)),
    *(f"B{number}" for number in range(1, 7)),
    *(f"K{number}" for number in (*range(1, 14), 15, 16)),
    *(f"D{number}" for number in range(1, 10)),
}
NOT_COVERED_MAX = 10


def rows(text: str) -> list[list[str]]:
    """Return the cells of the rows that have an id."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")
    ]
    return [row for row in cells if re.fullmatch(r"[A-Z]\d+", row[0])]


def test_every_row_is_there_once_and_few_are_not_covered() -> None:
    ids = [row[0] for row in rows(PAGE)]
    assert len(ids) == len(set(ids))
    assert set(ids) >= ROWS, ROWS - set(ids)
    not_covered = rows(PAGE.split("\n## Not covered\n")[1])
    assert 0 < len(not_covered) <= NOT_COVERED_MAX
    assert all(len(row) == 3 and len(row[2]) > 40 for row in not_covered), "each has its reason"


def test_every_row_that_is_covered_names_tests_that_there_are() -> None:
    names = {
        name
        for path in (CHECKOUT / "tests").rglob("test_*.py")
        for name in (path.name, *re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE))
    }
    names |= {
        name
        for path in (CHECKOUT / "tests").rglob("testdata/*.txt")
        for name in re.findall(r"^story (test_\w+)", path.read_text(), re.MULTILINE)
    }
    for row in rows(PAGE.split("\n## Not covered\n")[0]):
        cited = re.findall(r"`(?:\w+/)*(test_\w+(?:\.py)?)(\.\.\.)?(?:\[[^\]`]*\])?`", row[3])
        assert cited, f"{row[0]} names no test"
        for name, is_beginning in cited:
            found = [each for each in names if (each.startswith(name) if is_beginning else each == name)]
            assert found, f"{row[0]} names {name}, which is not there"


def test_every_kind_of_file_has_what_damage_to_it_does_and_none_of_it_is_a_loss() -> None:
    paths = ["FORMAT", "LOCK", "bookie/journal/quire.lock", "bookie/journal/current/1a.txn"]
    names = ("1.log", "VERSION", "lastMark", "lastMark.sealed", "lastId", "forgottenFences", "epoch", "DIRTY")
    paths += [f"bookie/ledgers/current/{name}" for name in names]
    rocksdb = (
        "000004.log",
        "000005.sst",
        "MANIFEST-000003",
        "OPTIONS-000007",
        "LOG",
        "LOG.old.1",
        "CURRENT",
        "LOCK",
        "IDENTITY",
    )
    for folder in ("metadata", "bookie/ledgers/current/locations", "bookie/ledgers/current/ledgers"):
        paths += [
            f"{folder}/{name}" for name in (*rocksdb, "rocksdict-config.json", "quire-synced.a", "quire-synced.b")
        ]
    promised = promises()
    rows = {row_of(kind_of(path)) for path in paths}
    assert {row for row, _ in promised} == rows
    assert set(promised) == {(row, damage) for row in rows for damage in Damage}
    assert all(verdicts and verdicts <= set(GOOD) for verdicts in promised.values())

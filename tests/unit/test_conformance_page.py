"""docs/conformance.md names tests that there are, the stories of the Java client, and the exceptions that
scripts/official-suite allows."""

from __future__ import annotations

import re
from pathlib import Path

from tests.interop.java_client import STORIES
from tools.official_suite.__main__ import EXCEPTIONS
from tools.official_suite.verdict import exceptions

CHECKOUT = Path(__file__).parents[2]
PAGE = (CHECKOUT / "docs/conformance.md").read_text()
COVERED, NOT_COVERED = PAGE.split("\n## Not covered\n")
NOT_COVERED_MAX = 10


def rows(text: str) -> list[list[str]]:
    """Return the cells of all tables in the text, without their heads."""
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:1] == "|"]
    return [row for row in cells if row[0] not in ("class", "story", "test") and not row[0].startswith("---")]


def test_every_row_names_tests_that_there_are() -> None:
    classes = rows(COVERED.split("\n## Pulsar's test classes about topics\n")[1])
    assert len(classes) > 80
    missing = []
    for row in classes:
        assert len(row) == 3, row
        named = re.findall(r"`([^`:]+)::(test_\w+)`", row[2])
        assert len(named) == row[2].count("`") // 2 > 0, f"no tests: {row}"
        for path, name in named:
            file = CHECKOUT / "tests" / path
            if not file.exists() or not re.search(rf"^((async )?def|story) {name}\b", file.read_text(), re.MULTILINE):
                missing.append(f"{path}::{name}")
    assert not missing, "\n".join(missing)


def test_few_classes_are_not_covered_and_each_has_its_reason() -> None:
    found = rows(NOT_COVERED)
    assert 0 < len(found) <= NOT_COVERED_MAX
    assert all(len(row) == 2 and len(row[1]) > 40 for row in found)


def test_the_exceptions_of_the_official_suite_are_those_of_the_script() -> None:
    section = COVERED.split("\n## The official client's tests\n")[1].split("\n## ")[0]
    listed = {row[0].strip("`"): row[1] for row in rows(section)}
    assert listed == exceptions(EXCEPTIONS.read_text(), cluster=True)


def test_the_stories_of_the_java_client_are_those_that_are_run() -> None:
    section = COVERED.split("\n## Pulsar's Java client\n")[1].split("\n## ")[0]
    program = (CHECKOUT / "tests/interop/pulsar/src/main/java/Stories.java").read_text()
    assert [row[0].strip("`") for row in rows(section)] == list(STORIES)
    assert re.findall(r'ALL\.put\("([\w-]+)"', program) == list(STORIES)

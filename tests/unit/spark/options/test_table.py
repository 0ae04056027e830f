from __future__ import annotations

from pathlib import Path

from quire.spark.options.foreign import FOREIGN
from quire.spark.options.table import OPTIONS, markdown

ROOT = Path(__file__).resolve().parents[4]


def test_the_documentation_is_what_the_table_says() -> None:
    """A failure is mended by `python -m quire.spark.options.table > docs/spark-options.md`."""
    assert (ROOT / "docs" / "spark-options.md").read_text(encoding="utf-8") == markdown()


def test_no_name_means_two_things() -> None:
    names = [name.lower() for option in OPTIONS for name in (option.name, *option.aliases)]
    names += [foreign.name.lower() for foreign in FOREIGN]
    assert sorted(set(names)) == sorted(names)


def test_no_cell_of_the_documentation_breaks_its_table() -> None:
    rows = [line for line in markdown().splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {6, 3}

"""quire.service.properties: lines are read as by java.util.Properties and commons-configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from quire.service.errors import ConfigError
from quire.service.properties import Grammar, parse_properties, read_properties
from tests.support.datadriven import Line
from tests.support.dialogues import Dialogue, dialogues
from tests.support.refusals import refuses

JAVA, COMMONS = Grammar.JAVA, Grammar.COMMONS


@pytest.mark.parametrize("dialogue", dialogues(Path(__file__).parent / "testdata" / "properties.txt"))
def test_lines(dialogue: Dialogue) -> None:
    """Files are written with Python's escapes; shown are the line, the name and the values of each key."""

    def read(text: str, grammar: Grammar) -> str:
        try:
            found = parse_properties(text.encode("latin-1").decode("unicode_escape"), grammar, source="s")
        except ConfigError as error:
            return str(error)
        return "; ".join(f"{each.line} {each.name}={', '.join(map(repr, each.values))}" for each in found)

    def answer(step: Line) -> str:
        text = step.word()
        if step.name != "both":
            return read(text, JAVA if step.name == "java" else COMMONS)
        assert read(text, JAVA) == read(text, COMMONS)
        return read(text, JAVA)

    dialogue.check(answer)


def test_included_files_stand_where_they_are_named(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "bk.conf").write_text("a=1\nInclude = part/one.conf, two.conf\na=2\nb=${c}\n")
    (tmp_path / "part/one.conf").write_text("# first\na=3\ninclude=deep.conf\n")
    (tmp_path / "part/deep.conf").write_text("c=4\n")
    (tmp_path / "two.conf").write_text("a=5\n")
    found = read_properties(tmp_path / "bk.conf", COMMONS)
    assert {each.name: each.values for each in found} == {"a": ("1", "3", "5", "2"), "c": ("4",), "b": ("4",)}
    assert [each.at for each in found if each.name == "c"] == [f"{tmp_path}/part/deep.conf:1: "]
    assert [each.name for each in read_properties(tmp_path / "part/one.conf", JAVA)] == ["a", "include"]


def test_files_that_include_each_other_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("include=b.conf\n")
    (tmp_path / "b.conf").write_text("include=a.conf\n")
    refuses(ConfigError, lambda: read_properties(tmp_path / "a.conf", COMMONS), "include each other")


def test_a_file_that_cannot_be_read_is_a_config_error(tmp_path: Path) -> None:
    refuses(ConfigError, lambda: read_properties(tmp_path / "none.conf", JAVA), r"none\.conf: cannot be read")
    (tmp_path / "latin.conf").write_bytes(b"clusterName=caf\xe9\n")
    refuses(ConfigError, lambda: read_properties(tmp_path / "latin.conf", JAVA), "not UTF-8 at byte 15")

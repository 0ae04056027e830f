"""quire.service.properties: lines are read as by java.util.Properties and commons-configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from quire.service.errors import ConfigError
from quire.service.properties import Grammar, parse_properties, read_properties

JAVA, COMMONS = Grammar.JAVA, Grammar.COMMONS
BOTH = (JAVA, COMMONS)


def pairs(text: str, grammar: Grammar) -> list[tuple[int, str, tuple[str, ...]]]:
    return [(each.line, each.name, each.values) for each in parse_properties(text, grammar, source="s")]


LINES = [
    ("a=1", [(1, "a", ("1",))]),
    ("  a \t= 1  ", [(1, "a", ("1",))]),
    ("a: 1", [(1, "a", ("1",))]),
    ("a 1", [(1, "a", ("1",))]),
    ("a\t:1 2", [(1, "a", ("1 2",))]),
    ("a", [(1, "a", ("",))]),
    ("a=", [(1, "a", ("",))]),
    ("a==b", [(1, "a", ("=b",))]),
    ("a=b:c=d # e", [(1, "a", ("b:c=d # e",))]),
    (r"a\:b=1", [(1, "a:b", ("1",))]),
    (r"a\=b c", [(1, "a=b", ("c",))]),
    (r"a=x\\y", [(1, "a", (r"x\y",))]),
    (r"a=x\ty\q", [(1, "a", ("x\tyq",))]),
    (r"a=caf\u00e9", [(1, "a", ("café",))]),
    ("a=1,\\\n   2,\\\n   3\nb=4", [(1, "a", ("1,2,3",)), (4, "b", ("4",))]),
    ("a=1\\\\\nb=2", [(1, "a", ("1\\",)), (2, "b", ("2",))]),
    ("a=1\r\nb=2\r\n", [(1, "a", ("1",)), (2, "b", ("2",))]),
    ("# a=1 \\\nb=2", [(2, "b", ("2",))]),
    ("\n ! a=1\n\n\tb=2", [(4, "b", ("2",))]),
]


@pytest.mark.parametrize("grammar", BOTH)
@pytest.mark.parametrize(("text", "found"), LINES)
def test_a_line_is_read_as_by_the_originals(
    text: str, found: list[tuple[int, str, tuple[str, ...]]], grammar: Grammar
) -> None:
    assert pairs(text, grammar) == found


@pytest.mark.parametrize(
    ("text", "java", "commons"),
    [
        ("a=1\na=2\n", [(2, "a", ("2",))], [(1, "a", ("1", "2"))]),
        ("a=1\nb=2\na=3\n", [(2, "b", ("2",)), (3, "a", ("3",))], [(1, "a", ("1", "3")), (2, "b", ("2",))]),
        ("a=1\na=\n", [(2, "a", ("",))], [(1, "a", ("1", ""))]),
        ("a=1\\ \nb=2", [(1, "a", ("1",)), (2, "b", ("2",))], [(1, "a", ("1b=2",))]),
        ("a=1\\\n# no\n 2", [(1, "a", ("1# no",)), (3, "2", ("",))], [(1, "a", ("12",))]),
        ("a=1\nb=${a}/${c}", [(1, "a", ("1",)), (2, "b", ("${a}/${c}",))], [(1, "a", ("1",)), (2, "b", ("1/${c}",))]),
        ("b=${a}\na=${c}x\nc=$${a}", None, [(1, "b", ("${a}x",)), (2, "a", ("${a}x",)), (3, "c", ("${a}",))]),
    ],
)
def test_the_two_readers_differ(
    text: str,
    java: list[tuple[int, str, tuple[str, ...]]] | None,
    commons: list[tuple[int, str, tuple[str, ...]]],
) -> None:
    assert java is None or pairs(text, JAVA) == java
    assert pairs(text, COMMONS) == commons


@pytest.mark.parametrize("grammar", BOTH)
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a=1\n=2", "s:2: not a key=value line: '=2'"),
        ("a=1\n\nb=\\u12", r"s:3: \u12 is not a character: \u and four hexadecimal digits"),
    ],
)
def test_what_is_no_line_is_named_with_its_number(text: str, complaint: str, grammar: Grammar) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_properties(text, grammar, source="s")
    assert str(caught.value) == complaint


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a=${b}\nb=${a}", "leads back to itself"),
        ("a=${env:HOME}", r"s:1: a: \$\{env:HOME\} is not looked up here"),
        ("include=other.conf", "other.conf: cannot be read"),
    ],
)
def test_what_cannot_be_looked_up_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_properties(text, COMMONS, source="s")


@pytest.mark.parametrize("value", ["$HOME", "${HOME}"])
def test_a_value_that_pulsar_takes_from_the_environment_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"s:2: a: \$\{?HOME\}? is not looked up here; write its value"):
        parse_properties(f"b=x{value}\na={value}", JAVA, source="s")


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
    with pytest.raises(ConfigError, match="include each other"):
        read_properties(tmp_path / "a.conf", COMMONS)


def test_a_file_that_cannot_be_read_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.conf: cannot be read"):
        read_properties(tmp_path / "none.conf", JAVA)
    (tmp_path / "latin.conf").write_bytes(b"clusterName=caf\xe9\n")
    with pytest.raises(ConfigError, match="not UTF-8 at byte 15"):
        read_properties(tmp_path / "latin.conf", JAVA)

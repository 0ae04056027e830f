"""Avro schemas: what is one, which say the same, and which read what others wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from broker.topics.schemas.avro_resolution import TooManyPairsError, why_unreadable
from broker.topics.schemas.avro_schema import AvroSchemaError, AvroType, parse, same
from tests.support.datadriven import Line, check

TESTDATA = Path(__file__).parent / "testdata"


def parsed(value: Any) -> AvroType:
    return parse(json.dumps(value).encode())


def verdicts(command: Line, steps: Sequence[Line]) -> list[str]:
    """Return what the new schema reads and what it writes."""
    assert command.text == "change"
    old, new = (parse(step.word().encode()) for step in steps)
    assert [step.name for step in steps] == ["old", "new"]
    reads, is_read = why_unreadable(old, new), why_unreadable(new, old)
    return [f"reads the old: {reads or 'yes'}", f"is read by the old: {is_read or 'yes'}"]


def test_every_change_has_the_verdict_of_the_table() -> None:
    check(TESTDATA / "avro_changes.txt", verdicts)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "3",
        "NaN",
        '"unknown"',
        "{}",
        '{"type":["null","int"]}',
        '["int","int"]',
        '[["int"]]',
        '{"type":"array"}',
        '{"type":"record","fields":[]}',
        '{"type":"record","name":"R"}',
        '{"type":"record","name":"R","fields":[{"name":"a"}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
        '{"type":"record","name":"a-b","fields":[]}',
        '{"type":"record","name":"","fields":[]}',
        '{"type":"record","name":"int","fields":[]}',
        '{"type":"record","name":"R","namespace":"a-b","fields":[]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"record","name":"R","fields":[]}}]}',
        '{"type":"enum","name":"E","symbols":["A","A"]}',
        '{"type":"enum","name":"E","symbols":["A"],"default":"B"}',
        '{"type":"enum","name":"E","symbols":["A-"]}',
        '{"type":"fixed","name":"F"}',
        '{"type":"fixed","name":"F","size":-1}',
        '{"type":"int"} x',
        "[" * 300 + "]" * 300,
        "[" * 100_000,
    ],
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(AvroSchemaError):
        parse(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        '"int"',
        "[]",
        '{"type":"record","name":"$a.B$1","fields":[]}',
        '{"type":"record","name":"R","fields":[{"name":"next","type":["null","R"],"default":"unchecked"}]}',
        '{"type":"record","name":"R","namespace":"a","fields":[{"name":"x","type":{"type":"fixed","name":"F","size":0}},'
        '{"name":"y","type":"F"},{"name":"z","type":"a.F"}]}',
        '{"type":"record","name":"R","fields":[{"name":"x","type":"L"},{"name":"y",'
        '"type":{"type":"enum","name":"L","symbols":[]}}]}',
        '{"type":"error","name":"E","fields":[]}',
        '{"type":"record","name":"Größe","fields":[]}',
    ],
)
def test_what_is_a_schema_is_accepted(text: str) -> None:
    parse(text.encode())


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ('"int"', '{"type": "int"}', True),
        ('{"type":"record","name":"R","doc":"x","fields":[]}', '{"fields":[],"name":"R","type":"record"}', True),
        (
            '{"type":"record","name":"R","aliases":["S"],"fields":[]}',
            '{"type":"record","name":"R","fields":[]}',
            True,
        ),
        (
            '{"type":"record","name":"a.R","fields":[]}',
            '{"type":"record","name":"R","namespace":"a","fields":[]}',
            True,
        ),
        ('{"type":"record","name":"R","fields":[]}', '{"type":"record","name":"S","fields":[]}', False),
        ('{"type":"int","logicalType":"date"}', '"int"', False),
        ('{"type":"fixed","name":"F","size":1}', '{"type":"fixed","name":"F","size":2}', False),
        ('{"type":"enum","name":"E","symbols":["A"]}', '{"type":"enum","name":"E","symbols":["B"]}', False),
        ('{"type":"array","items":"int"}', '{"type":"array","items":"long"}', False),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":1}]}',
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}',
            False,
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int","doc":"d"}]}',
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}',
            True,
        ),
    ],
)
def test_schemas_that_say_the_same_are_found_whatever_their_text_is(one: str, other: str, expected: bool) -> None:
    assert same(parse(one.encode()), parse(other.encode())) is expected


def test_a_comparison_of_types_that_refer_to_each_other_in_many_ways_ends() -> None:
    def tangled(letter: str) -> AvroType:
        names = [f"{letter}{number}" for number in range(80)]
        fields = [{"name": f"f{number}", "type": ["null", *names]} for number in range(2)]
        return parsed([{"type": "record", "name": name, "fields": fields} for name in names])

    began = perf_counter()
    why_unreadable(tangled("A"), tangled("B"))
    assert perf_counter() - began < 20


def test_a_comparison_that_takes_too_long_is_given_up() -> None:
    types = [{"type": "fixed", "name": f"F{number}", "size": 1} for number in range(400)]
    with pytest.raises(TooManyPairsError):
        why_unreadable(parsed(types), parsed(["int", *reversed(types)]))


def test_a_default_that_contains_itself_is_not_valid() -> None:
    inner = {"type": "record", "name": "S", "fields": [{"name": "s", "type": "S", "default": {}}]}
    old = parsed({"type": "record", "name": "R", "fields": []})
    new = parsed({"type": "record", "name": "R", "fields": [{"name": "x", "type": inner, "default": {}}]})
    assert "default" in why_unreadable(old, new)

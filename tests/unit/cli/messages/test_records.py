"""JSON lines and the cutting of input: quire/cli/messages/records.py."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.cli.messages.access import FlagsError
from quire.cli.messages.records import InputCutter, MessageRecord, from_json, to_json, unescape
from tests.support.refusals import refuses

TEXTS = st.text(st.characters(codec="utf-8"))
RECORDS = st.builds(
    MessageRecord,
    value=st.none() | st.binary() | TEXTS.map(str.encode),
    key=st.none() | st.binary() | TEXTS.map(str.encode),
    properties=st.lists(st.tuples(TEXTS, TEXTS), max_size=4).map(tuple),
    event_ms=st.integers(0, 2**63 - 1),
)


@given(RECORDS)
def test_a_line_gives_the_same_message_back(record: MessageRecord) -> None:
    line = to_json(record)
    assert "\n" not in line
    assert from_json(line, "line 1") == record


def test_where_a_message_came_from_is_written_and_not_read() -> None:
    record = MessageRecord(b"v", topic="persistent://public/default/t", id="1:2:3", publish_ms=17)
    assert json.loads(to_json(record)) == {"topic": record.topic, "id": "1:2:3", "publish_time": 17, "value": "v"}
    assert from_json(to_json(record), "line 1") == MessageRecord(b"v")


def test_a_value_that_is_no_text_may_be_any_json() -> None:
    assert from_json('{"value": {"a": [1, 2.5]}}', "x").value == b'{"a": [1, 2.5]}'


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("{", "line 7 is not JSON"),
        ("[1]", "line 7 is not a JSON object"),
        ('{"vlaue": "x"}', "line 7 has the field 'vlaue'; did you mean 'value'?"),
        ('{"key": "x"}', "line 7 has no value"),
        ('{"value": "a", "value_base64": "YQ=="}', "line 7 has value and value_base64"),
        ('{"value_base64": "*"}', "value_base64 is not base64"),
        ('{"value_base64": 5}', "value_base64 is not base64"),
        ('{"value": "\\ud800"}', "lone surrogate"),
        ('{"value": "a", "properties": {"a": 1}}', "an object whose values are texts"),
        ('{"value": "a", "properties": {"a": "\\ud800"}}', "lone surrogate"),
        ('{"value": "a", "event_time": -1}', "event_time is -1"),
        ('{"value": "a", "event_time": true}', "event_time is True"),
    ],
)
def test_a_line_that_would_be_another_message_is_refused(line: str, text: str) -> None:
    refuses(FlagsError, lambda: from_json(line, "line 7"), re.escape(text))


@given(st.lists(st.binary(max_size=6)), st.binary(min_size=1, max_size=3), st.data())
def test_input_is_cut_alike_wherever_it_was_divided(pieces: list[bytes], separator: bytes, data: st.DataObject) -> None:
    whole = separator.join(pieces)
    expected = whole.split(separator)
    if expected and not expected[-1]:
        expected.pop()
    cutter, at = InputCutter(separator), 0
    found: list[bytes] = []
    while at < len(whole):
        size = data.draw(st.integers(1, len(whole) - at))
        found += cutter.feed(whole[at : at + size])
        at += size
    assert [*found, *cutter.end()] == expected


def test_an_endless_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.cli.messages.records.LINE_BYTES_MAX", 10)
    cutter = InputCutter(b"\n")
    assert list(cutter.feed(b"0123456789")) == []
    refuses(FlagsError, lambda: list(cutter.feed(b"0")))


def test_a_separator_may_be_written_with_escapes() -> None:
    assert (unescape("\\n"), unescape("\\t"), unescape("\\0"), unescape("--")) == ("\n", "\t", "\0", "--")

"""quire.cli.admin.rendering: values, tables and messages as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quire.cli.admin.rendering import human
from quire.cli.admin.rendering.messages import OneMessage, json_of, messages_of
from quire.cli.admin.rendering.tables import Table, blocks
from quire.cli.admin.verbs import Message
from quire.wire.pulsar.PulsarApi_pb2 import SingleMessageMetadata
from tests.support.datadriven import Line
from tests.support.dialogues import Dialogue, dialogues

NOW_MS = 1_000_000_000_000


@pytest.mark.parametrize("dialogue", dialogues(Path(__file__).parent / "testdata" / "values.txt"))
def test_values(dialogue: Dialogue) -> None:
    def answer(step: Line) -> str:
        text = step.word()
        return human.value(step.name, json.loads(text), NOW_MS)

    dialogue.check(answer)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, []),
        ([], ["none"]),
        ({}, ["none"]),
        (["a", "b"], ["a", "b"]),
        ("4.2.4", ["4.2.4"]),
        (172800, ["172800"]),
        (True, ["true"]),
        ({"a": 1, "b": ["x", "y"]}, [Table("", (), [("a", "1"), ("b", "x, y")])]),
        ([{"a": 1}, {"b": 2}], [Table("", ["a", "b"], [["1", "-"], ["-", "2"]])]),
        ({"one": {"a": 1}}, [Table("one", (), [("a", "1")])]),
        ({"of": {"x": {"a": 1}, "y": {"a": 2}}}, [Table("of", ["", "a"], [["x", "1"], ["y", "2"]])]),
        ({"deep": {"x": {"a": {"b": 2}}}}, ["deep:", '{\n  "x": {\n    "a": {\n      "b": 2\n    }\n  }\n}']),
    ],
)
def test_the_shape_of_an_answer_decides(answer: Any, expected: list[Any]) -> None:
    assert blocks("", answer, NOW_MS) == expected


def batch(*messages: tuple[bytes, dict[str, str], str]) -> Message:
    parts = []
    for payload, properties, key in messages:
        metadata = SingleMessageMetadata(payload_size=len(payload), partition_key=key)
        for name, value in properties.items():
            metadata.properties.add(key=name, value=value)
        encoded = metadata.SerializeToString()
        parts += [len(encoded).to_bytes(4, "big"), encoded, payload]
    return Message({"x-pulsar-message-id": "1:2", "x-pulsar-num-batch-message": str(len(messages))}, b"".join(parts))


def test_a_batch_is_shown_message_by_message() -> None:
    entry = batch((b"one", {"a": "b"}, "k"), (b"\xff\x00", {}, ""))
    assert messages_of(entry) == [OneMessage(b"one", "k", {"a": "b"}), OneMessage(b"\xff\x00")]
    [table] = blocks("", entry, NOW_MS)
    assert isinstance(table, Table)
    assert table.rows[2:] == [("key", "k"), ("properties", "a=b"), ("payload", "one"), ("payload", "ff 00")]
    assert json_of(entry) == {
        "headers": dict(entry.headers),
        "messages": [
            {"payload": "b25l", "key": "k", "properties": {"a": "b"}},
            {"payload": "/wA=", "key": None, "properties": {}},
        ],
    }


@pytest.mark.parametrize("cut", [1, 3, 5, 9])
def test_a_batch_that_cannot_be_read_is_shown_as_it_is(cut: int) -> None:
    whole = batch((b"one", {}, "k"))
    entry = Message(whole.headers, whole.payload[:-cut])
    assert messages_of(entry) == [OneMessage(entry.payload)]

"""`quire admin` against a server: a long script of verbs, with what they print (testdata/admin_commands.txt)."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pulsar
import pytest

from tests.support.admin_commands import admin
from tests.support.datadriven import Line
from tests.support.dialogues import Dialogue, dialogues
from tests.support.server import StandaloneProcess

SCRIPT = Path(__file__).parent / "testdata" / "admin_commands.txt"
_CHANGING = (
    (r"127\.0\.0\.1:\d+", "HOST:PORT"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z( \(.*?\))?", "TIME"),
    (r'("timestamp": )\d+', r"\1MS"),
    (r"standalone-\d+-\d+", "PRODUCER"),
    (r"\b\d+:(-?\d+)\b", r"L:\1"),
    (r'("ledgerId": )\d+', r"\1L"),
    (r"\] +-?\d+ ", "]  L  "),
    (r"(?m)^\d+( +\d+ +\d+ B +no )", r"L\1"),
    (r"(?m)^(ownerBroker|ledgerId|lastLedgerCreatedTimestamp) +\S+ *$", r"\1 X"),
    (r"(?m)^(msgRate\w+|msgThroughput\w+) .*", r"\1 X"),
    (r"  +", "  "),
)
"""Patterns of text that differs between two runs, and the text that stands for it."""


@pytest.mark.real_clock
@pytest.mark.parametrize("dialogue", dialogues(SCRIPT))
def test_script(
    dialogue: Dialogue,
    server: StandaloneProcess,
    client: pulsar.Client,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(SCRIPT.parent)
    group = dialogue.command.word()

    def publish(topic: str, count: int) -> str:
        producer = client.create_producer(topic, batching_enabled=False)
        for index in range(count):
            producer.send(f"message {index}".encode(), properties={"n": str(index)})
        producer.close()
        return ""

    def answer(step: Line) -> str:
        words = step.word() if step.words else ""
        if step.name == "publish":
            topic, count = words.split()
            return publish(topic, int(count))
        code, out, err = admin(f"{'' if group == 'admin' else group} {step.name} {words} --url {server.web}")
        text = out + err + (f"exit {code}" if code else "")
        for pattern, replacement in _CHANGING:
            text = re.sub(pattern, replacement, text)
        return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())

    dialogue.check(answer)


def test_a_command_ends_when_the_broker_does_not_answer_in_time() -> None:
    began = time.monotonic()
    code, _, err = admin("brokers list --url http://127.0.0.1:1 --timeout 5")
    assert (code, time.monotonic() - began < 5) == (3, True)
    assert err.startswith("quire admin brokers list: no answer from http://127.0.0.1:1: ")

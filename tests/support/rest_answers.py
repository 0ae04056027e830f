"""Answers of the admin REST to the calls of tests/golden/rest/calls.txt, in a form in which two servers compare.

An answer is some lines: the status, and for a success the body. An exact body is one line of JSON with sorted keys. The
shape of a body has a line for each value in it, with its place and its type. A refusal is only its status, since the
texts are each server's own. Headers of a message (X-Pulsar-...) are lines too, those that do not change with each run.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import pulsar

from tests.support.datadriven import REWRITE

FOLDER = Path(__file__).parents[1] / "golden/rest"
CALLS = FOLDER / "calls.txt"
HEADERS = ("x-pulsar-num-batch-message", "x-pulsar-sequence-id", "x-pulsar-partition-key", "x-pulsar-property-")
RECEIVE_MS = 30_000
Ask: TypeAlias = Callable[..., httpx2.Response]
Answers: TypeAlias = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Call:
    """One line of the calls."""

    name: str
    """The line; from its second time on with the number behind it."""
    method: str
    path: str
    body: str
    is_shape: bool


def calls() -> Iterator[Call]:
    """Yield the calls and deeds, in their order; a deed has the method `!`."""
    seen: dict[str, int] = {}
    for line in CALLS.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        seen[line] = seen.get(line, 0) + 1
        name = line if seen[line] == 1 else f"{line} [{seen[line]}]"
        if line.startswith("!"):
            yield Call(name, "!", line[1:], "", False)
        else:
            method, path, body = f"{line} ".split(" ", 2)
            yield Call(name, method.removeprefix("~"), path, body.strip(), line.startswith("~"))


def record(ask: Ask, broker_id: str, url: str, after: Callable[[str], None] = lambda name: None) -> Answers:
    """Make all calls to a server, and return the answer of each."""
    names = {"broker": broker_id, "ledger": "0"}
    found: Answers = {}
    attached = _Attached(url)
    for call in calls():
        if call.method == "!":
            attached.act(*call.path.split())
            stats = ask("GET", "/admin/v2/persistent/acme/apps/orders/internalStats").json()
            names["ledger"] = str(next(each["ledgerId"] for each in stats["ledgers"]))
            continue
        body = _filled(call.body, names)
        options: dict[str, Any] = {"content": body.encode(), "headers": {"Content-Type": "application/json"}}
        answer = ask(call.method, _filled(call.path, names), **(options if body else {}))
        found[call.name] = list(_lines(answer, call, names))
        after(call.name)
    return found


def _filled(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\{(broker|ledger)\}", lambda match: names[match[1]], text)


class _Attached:
    """Official clients that stay attached between two deeds."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._kept: list[pulsar.Client] = []

    def act(self, kind: str, *words: str) -> None:
        getattr(self, kind)(*words)

    def produce(self, topic: str, count: str) -> None:
        with closing(self._client()) as client:
            producer = client.create_producer(f"persistent://{topic}", producer_name="recorder", batching_enabled=False)
            for number in range(int(count)):
                key, properties = f"key {number}", {"number": str(number)}
                producer.send(f"message {number}".encode(), partition_key=key, properties=properties)

    def attach(self, topic: str, name: str) -> None:
        client = self._client()
        self._kept.append(client)
        producer = client.create_producer(f"persistent://{topic}", producer_name="recorder", batching_enabled=False)
        kind = pulsar.ConsumerType.Shared
        consumer = client.subscribe(f"persistent://{topic}", name, consumer_type=kind, consumer_name="reader")
        producer.send(b"attached")
        consumer.acknowledge(consumer.receive(RECEIVE_MS))

    def detach(self) -> None:
        while self._kept:
            self._kept.pop().close()

    def _client(self) -> pulsar.Client:
        return pulsar.Client(self._url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))


def _lines(answer: httpx2.Response, call: Call, names: Mapping[str, str]) -> Iterator[str]:
    yield str(answer.status_code)
    if not answer.is_success or not answer.content:
        return
    for name in sorted(answer.headers):
        if name.startswith(HEADERS):
            yield f"{name}: {answer.headers[name]}"
    try:
        body = answer.json()
    except ValueError:
        body = answer.text
    if call.is_shape:
        yield from sorted(set(shape(_named(body, names))))
    else:
        yield json.dumps(_named(body, names), sort_keys=True, ensure_ascii=False)


def _named(value: Any, names: Mapping[str, str]) -> Any:
    """Return a body with the names that differ between runs in braces."""
    text = json.dumps(value).replace(names["broker"], "{broker}")
    return json.loads(re.sub(rf'"{names["ledger"]}"', '"{ledger}"', text))


def shape(value: Any, at: str = "") -> Iterator[str]:
    """Yield a line for each value in a body, with its place and its type."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from shape(each, f"{at}/{key}")
    elif isinstance(value, list) and value:
        for each in value:
            yield from shape(each, f"{at}/*")
    else:
        kinds = {dict: "{}", list: "[]", str: "text", bool: "flag", int: "number", float: "number", type(None): "null"}
        yield f"{at or '/'}: {kinds[type(value)]}"


def written(answers: Answers) -> str:
    """Return answers as a text; `read` returns them from it."""
    return "\n".join("\n".join((name, *(f"    {line}" for line in lines))) + "\n" for name, lines in answers.items())


def read(text: str) -> Answers:
    """Return the answers of a text; lines of comment (`#`) are left out."""
    found: Answers = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("    "):
            found[name].append(line[4:])
        elif line and not line.startswith("#"):
            found[name := line] = []
    return found


def differences(theirs: Answers, ours: Answers) -> Answers:
    """Return the lines that one of two answers alone has: `-` theirs, `+` ours; equal answers are left out."""
    found = {}
    for name, lines in theirs.items():
        mine = ours[name]
        if mine != lines:
            found[name] = [f"- {each}" for each in lines if each not in mine]
            found[name] += [f"+ {each}" for each in mine if each not in lines]
    return found


def reasons(text: str) -> dict[str, str]:
    """Return the reason of each difference of a text: the comment above it, or above the first of a group, after which
    only differences with the same reason follow up to an empty line."""
    found: dict[str, str] = {}
    reason = ""
    for line in text.splitlines():
        if line.startswith("# "):
            reason = line[2:]
        elif line and not line.startswith("    "):
            found[line] = reason
    return found


def with_reasons(answers: Answers, known: Mapping[str, str]) -> str:
    """Return differences as a text, grouped by their reasons."""
    groups: dict[str, Answers] = {}
    for name, lines in answers.items():
        groups.setdefault(known.get(name, ""), {})[name] = lines
    return "\n".join(f"# {reason}\n\n{written(group)}" for reason, group in sorted(groups.items()))


def check(ours: Answers, recorded: Path, listed: Path) -> None:
    """Hold answers against the recorded ones, but for the listed differences. With QUIRE_REWRITE_TEXTS=1 the present
    differences are written into the list, with the reasons in it; it fails then, too."""
    theirs, known = read(recorded.read_text()), listed.read_text()
    assert ours.keys() == theirs.keys(), "calls.txt changed: record the answers again"
    found = with_reasons(differences(theirs, ours), reasons(known))
    if REWRITE in os.environ:
        listed.write_text(found)
    changed = unified_diff(known.splitlines(), found.splitlines(), "listed", "present", lineterm="")
    assert found == known, "\n".join(changed)


def without_reason(listed: Path) -> list[str]:
    """Return the names of listed differences that have no reason."""
    known = listed.read_text()
    return [name for name in read(known) if not reasons(known).get(name)]

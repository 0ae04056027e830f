"""Answers of the admin REST to the calls of tests/golden/rest/calls.txt, in a form in which two servers compare.

An answer is some lines: the status, and for a success the body. An exact body is one line of JSON with sorted keys. The
shape of a body has a line for each value in it, with its place and its type. A refusal is only its status, since the
texts are each server's own. Headers of a message (X-Pulsar-...) are lines too, those that do not change with each run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import pulsar

FOLDER = Path(__file__).parents[1] / "golden/rest"
CALLS = FOLDER / "calls.txt"
HEADERS = ("x-pulsar-num-batch-message", "x-pulsar-sequence-id", "x-pulsar-partition-key", "x-pulsar-property-")
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
    for call in calls():
        if call.method == "!":
            _act(call.path.split(), url)
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


def _act(words: list[str], url: str) -> None:
    kind, topic, count = words
    assert kind == "produce", kind
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    with closing(pulsar.Client(url, logger=logger)) as client:
        producer = client.create_producer(f"persistent://{topic}", producer_name="recorder", batching_enabled=False)
        for number in range(int(count)):
            producer.send(f"message {number}".encode(), partition_key=f"key {number}", properties={"number": str(number)})


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
        yield from sorted(set(_shape(_named(body, names))))
    else:
        yield json.dumps(_named(body, names), sort_keys=True, ensure_ascii=False)


def _named(value: Any, names: Mapping[str, str]) -> Any:
    """Return a body with the names that differ between runs in braces."""
    text = json.dumps(value).replace(names["broker"], "{broker}")
    return json.loads(re.sub(rf'"{names["ledger"]}"', '"{ledger}"', text))


def _shape(value: Any, at: str = "") -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _shape(each, f"{at}/{key}")
    elif isinstance(value, list) and value:
        for each in value:
            yield from _shape(each, f"{at}/*")
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

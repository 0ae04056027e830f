"""Answers of PulsarAdmin and of Pulsar's Java client to the calls of tests/golden/admin-client/calls.txt, in a form in
which two servers compare.

The program `Calls` prints each call with `returned` and JSON, or `threw` and a class. An answer is some lines. `~`
before a call: a line for each value in what it returned, with its place and its type. `*`: with its place and the
value. Without either: one line of JSON with sorted keys. Values that differ between runs are masked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.rest_answers import Answers, read, shape

FOLDER = Path(__file__).parents[1] / "golden/admin-client"
CALLS = FOLDER / "calls.txt"
_VOLATILE = re.compile(
    r"(rate|throughput\w*|time|timestamps?|since|address|latency|version|cost|size|sizeinbytes|bytes\w*counter|ledgerid"
    r"|average\w+|avg\w+|publishtime\w*|cputime|ageseconds|messageid|producerid)$",
    re.IGNORECASE,
)
"""Names of values that differ between two runs, or with the size of what a server adds to a message."""
_TRANSACTION = re.compile(r"\(\d+,\d+\)")


def answers(printed: str, ports: dict[int, str]) -> Answers:
    """Return the answers in what the program printed. `ports`: names of the server's ports, which are masked."""
    made: Answers = {}
    for name, [line] in read(printed).items():
        kind, _, text = line.partition(" ")
        for port, named in ports.items():
            text = text.replace(f"localhost:{port}", f"localhost:{{{named}}}")
        text = _TRANSACTION.sub("(transaction)", text)
        made[name] = [line] if kind == "threw" else list(_lines(name, json.loads(text)))
    return made


def _lines(name: str, value: Any) -> Iterator[str]:
    if name.startswith("~"):
        yield from sorted(set(shape(value)))
    elif name.startswith("*"):
        yield from sorted(set(_leaves(value)))
    else:
        yield json.dumps(_masked(value), sort_keys=True, ensure_ascii=False)


def _masked(value: Any, at: str = "") -> Any:
    """Return a value with the moments in it masked."""
    if isinstance(value, dict):
        return {key: _masked(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [_masked(each, at) for each in value]
    return "moment" if at == "timestamp" and value else value


def _leaves(value: Any, at: str = "") -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _leaves(each, f"{at}/{key}")
    elif isinstance(value, list) and value:
        for each in value:
            yield from _leaves(each, f"{at}/*")
    elif isinstance(value, str | int | float) and not isinstance(value, bool) and _VOLATILE.search(at):
        yield from shape(value, at)
    else:
        yield f"{at or '/'}: {json.dumps(value)}"

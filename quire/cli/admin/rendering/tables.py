"""Answers as tables.

A renderer returns blocks: texts, and tables of rows of texts under a heading. `printed` draws them with rich. A verb
names its renderer; otherwise the shape of the answer decides: a list of names is one per line, an object a table of two
columns, a list of objects a table with a column for each key.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final

from quire.cli.admin.rendering import human
from quire.cli.admin.rendering.messages import json_of, messages_of
from quire.cli.admin.verbs import Message

_WIDTH_OF_FILES: Final = 10_000
"""Width where the output is no terminal: nothing is cut or wrapped."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table. An empty title, and no headings, are allowed."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


Block = str | Table


def blocks(renderer: str, answer: Any, now_ms: int) -> list[Block]:
    """Return an answer as text and tables."""
    named = _RENDERERS.get(renderer)
    return _any(answer, now_ms) if named is None else named(answer, now_ms)


def printed(found: Sequence[Block]) -> None:
    """Draw blocks on standard output."""
    if all(isinstance(each, str) for each in found):
        for each in found:
            print(each)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable

    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else _WIDTH_OF_FILES, highlight=False, markup=False, file=sys.stdout)
    for each in found:
        if isinstance(each, str):
            console.print(each)
            continue
        if each.title:
            console.print(each.title, style="bold")
        drawn = RichTable(
            box=box.SIMPLE_HEAD if terminal and each.headings else None,
            show_header=bool(each.headings),
            pad_edge=False,
            header_style="bold" if terminal else "",
        )
        for index in range(max([len(each.headings), *(len(row) for row in each.rows)])):
            drawn.add_column(each.headings[index] if index < len(each.headings) else "", overflow="fold")
        for row in each.rows:
            drawn.add_row(*row)
        console.print(drawn)


def as_json(answer: Any) -> Any:
    """Return the JSON that --json prints: the answer itself, and messages as `json_of` says."""
    if isinstance(answer, Message):
        return json_of(answer)
    if isinstance(answer, list):
        return [as_json(each) for each in answer]
    return answer


def _any(answer: Any, now_ms: int) -> list[Block]:
    if answer is None:
        return []
    if isinstance(answer, Message):
        return _message(answer, now_ms)
    if isinstance(answer, dict):
        return _object(answer, now_ms) if answer else ["none"]
    if isinstance(answer, list):
        if not answer:
            return ["none"]
        if all(isinstance(each, dict) for each in answer):
            return [_records("", answer, now_ms)]
        return [block for each in answer for block in _any(each, now_ms)]
    return [answer if isinstance(answer, str) else json.dumps(answer)]


def _object(answer: Mapping[str, Any], now_ms: int) -> list[Block]:
    """Return the plain values as one table, and each nested object or list of objects as another one."""
    nested = {key: each for key, each in answer.items() if _is_nested(each)}
    plain = [(key, human.value(key, each, now_ms)) for key, each in answer.items() if key not in nested]
    found: list[Block] = [Table("", (), plain)] if plain else []
    for key, each in nested.items():
        if isinstance(each, list):
            found.append(_records(key, each, now_ms))
        elif all(isinstance(one, dict) and one for one in each.values()) and not any(
            _is_nested(inner) for one in each.values() for inner in one.values()
        ):
            found.append(_records(key, [{"": name, **one} for name, one in each.items()], now_ms))
        elif any(_is_nested(one) for one in each.values()):
            found += [f"{key}:", json.dumps(each, indent=2, ensure_ascii=False)]
        else:
            found.append(Table(key, (), [(name, human.value(name, one, now_ms)) for name, one in each.items()]))
    return found


def _is_nested(value: Any) -> bool:
    if isinstance(value, dict):
        return bool(value)
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _records(title: str, records: Sequence[Mapping[str, Any]], now_ms: int) -> Table:
    keys = list(dict.fromkeys(key for each in records for key in each))
    rows = [[human.value(key, each.get(key), now_ms) for key in keys] for each in records]
    return Table(title, keys, rows)


def _message(message: Message, now_ms: int) -> list[Block]:
    rows = [(key.removeprefix("x-pulsar-"), value) for key, value in message.headers.items()]
    for each in messages_of(message):
        rows += [("key", each.key)] if each.key else []
        rows += [("properties", human.value("", each.properties, now_ms))] if each.properties else []
        rows.append(("payload", _readable(each.payload)))
    return [Table("", (), rows)]


def _readable(payload: bytes) -> str:
    """Return text, or hexadecimal digits of what is no text."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return payload.hex(" ")


def _bookies(answer: Any, now_ms: int) -> list[Block]:
    return [each["bookieId"] for each in answer["bookies"]] or ["none"]


def _bundles(answer: Any, now_ms: int) -> list[Block]:
    boundaries = answer["boundaries"]
    return [f"{first}_{last}" for first, last in pairwise(boundaries)]


_TOPIC_KEYS: Final = (
    "msgRateIn",
    "msgThroughputIn",
    "msgRateOut",
    "msgThroughputOut",
    "averageMsgSize",
    "msgInCounter",
    "bytesInCounter",
    "msgOutCounter",
    "bytesOutCounter",
    "storageSize",
    "backlogSize",
    "oldestBacklogMessageAgeSeconds",
    "deduplicationStatus",
    "ownerBroker",
)
_SUBSCRIPTION_COLUMNS: Final = MappingProxyType(
    {
        "type": "type",
        "backlog": "msgBacklog",
        "size": "backlogSize",
        "out": "msgRateOut",
        "unacked": "unackedMessages",
        "delayed": "msgDelayed",
        "blocked": "blockedSubscriptionOnUnackedMsgs",
    }
)
_CLIENT_COLUMNS: Final = MappingProxyType({"address": "address", "version": "clientVersion", "since": "connectedSince"})


def _topic_stats(answer: Any, now_ms: int) -> list[Block]:
    found: list[Block] = [
        Table("", (), [(key, human.value(key, answer[key], now_ms)) for key in _TOPIC_KEYS if key in answer])
    ]
    publishers = answer.get("publishers") or []
    if publishers:
        rows = [
            [
                str(each.get("producerName", "-")),
                human.rate(each.get("msgRateIn", 0)),
                f"{human.size(each.get('msgThroughputIn', 0))}/s",
                *(str(each.get(key, "-")) for key in _CLIENT_COLUMNS.values()),
            ]
            for each in publishers
        ]
        found.append(Table("producers", ("name", "in", "bytes", *_CLIENT_COLUMNS), rows))
    subscriptions = answer.get("subscriptions") or {}
    if subscriptions:
        rows = [
            [
                name,
                *(human.value(key, each.get(key), now_ms) for key in _SUBSCRIPTION_COLUMNS.values()),
                str(len(each.get("consumers", ()))),
            ]
            for name, each in subscriptions.items()
        ]
        found.append(Table("subscriptions", ("name", *_SUBSCRIPTION_COLUMNS, "consumers"), rows))
    consumers = [(name, each) for name, one in subscriptions.items() for each in one.get("consumers", ())]
    if consumers:
        rows = [
            [
                name,
                str(each.get("consumerName", "-")),
                human.rate(each.get("msgRateOut", 0)),
                human.count(each.get("availablePermits", 0)),
                human.count(each.get("unackedMessages", 0)),
                *(str(each.get(key, "-")) for key in _CLIENT_COLUMNS.values()),
            ]
            for name, each in consumers
        ]
        headings = ("subscription", "name", "out", "permits", "unacked", *_CLIENT_COLUMNS)
        found.append(Table("consumers", headings, rows))
    for name, each in (answer.get("partitions") or {}).items():
        found += [f"{name}:", *_topic_stats(each, now_ms)]
    return found


def _internal_stats(answer: Any, now_ms: int) -> list[Block]:
    if "partitions" in answer:
        return [
            block
            for name, each in answer["partitions"].items()
            for block in (f"{name}:", *_internal_stats(each, now_ms))
        ]
    plain = {key: each for key, each in answer.items() if not isinstance(each, (dict, list))}
    found = _object(plain, now_ms)
    if answer.get("ledgers"):
        found.append(_records("ledgers", answer["ledgers"], now_ms))
    if answer.get("cursors"):
        keys = ("markDeletePosition", "readPosition", "individuallyDeletedMessages", "cursorLedger", "state")
        rows = [[name, *(str(each.get(key, "-")) for key in keys)] for name, each in answer["cursors"].items()]
        headings = ("name", "markDelete", "read", "individually deleted", "cursorLedger", "state")
        found.append(Table("cursors", headings, rows))
    return found


def _explain(answer: Any, now_ms: int) -> list[Block]:
    """Return the sentences of an explanation, each with its remedy."""
    if "partitions" in answer:
        return [block for each in answer["partitions"].values() for block in _explain(each, now_ms)]
    if "sentence" not in answer:
        answers = [answer["producers"], *answer["subscriptions"].values(), *answer["ledgers"]]
        return [block for each in answers for block in _explain(each, now_ms)]
    since = ""
    if answer["since_ms"] is not None:
        since = f" (for {human.duration(max(0.0, (now_ms - answer['since_ms']) / 1000))})"
    return [
        f"{answer['subject']}: {answer['state']}, {answer['cause']}{since}",
        f"  {answer['sentence']}",
        f"  remedy: {answer['remedy']}",
    ]


def _differences(answer: Any, now_ms: int) -> list[Block]:
    if not answer["differences"]:
        return [f"{answer['first']} and {answer['second']} have the same policies"]
    rows = [
        [each["policy"], *(_stored(each, side, now_ms) for side in ("first", "second"))]
        for each in answer["differences"]
    ]
    return [Table("", ("policy", answer["first"], answer["second"]), rows)]


def _stored(difference: Mapping[str, Any], side: str, now_ms: int) -> str:
    found = difference[side]
    return "-" if found is None else json.dumps(found, ensure_ascii=False)


_RENDERERS: Final[Mapping[str, Callable[[Any, int], list[Block]]]] = MappingProxyType(
    {
        "bookies": _bookies,
        "bundles": _bundles,
        "topic_stats": _topic_stats,
        "internal_stats": _internal_stats,
        "explain": _explain,
        "differences": _differences,
    }
)
RENDERERS: Final = frozenset(_RENDERERS)

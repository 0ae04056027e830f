"""JSON of large values, encoded in short steps. Pure.

An answer about 2000 partitions has 200,000 members, and one call of `json.dumps` holds the event loop for 100 ms.
Members without members of their own are encoded together by the C encoder, at most `MEMBERS_TOGETHER` at a time, so a
small value costs about the same as with one call.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from typing import Any

MEMBERS_TOGETHER = 500
"""Maximum number of members in one call of the C encoder."""
MEMBERS_IN_STEP = 1000
"""Members after which other tasks may run."""
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_CONTAINERS = (dict, list, tuple)


def encoding(value: object) -> Generator[None, None, bytes]:
    """Encode a value of dicts, lists, tuples and what `json` encodes; yield between two steps.

    A tuple with a method `as_json` is encoded as what that returns, which is made when its turn comes. Lists and dicts
    are read as they are when their first member is encoded.

    Returns:
        the JSON in UTF-8, without spaces.

    Raises:
        ValueError: a number is not finite, or a text has a lone surrogate.
        TypeError: a value that JSON does not have.

    >>> steps = encoding({"a": 1, "b": [1, {"c": []}, None], "d": {}})
    >>> try: next(steps)
    ... except StopIteration as done: done.value
    b'{"a":1,"b":[1,{"c":[]},null],"d":{}}'
    """
    parts: list[str] = []
    left = MEMBERS_IN_STEP
    for part, members in _parts(value):
        parts.append(part)
        left -= members
        if left <= 0:
            left = MEMBERS_IN_STEP
            yield
    return "".join(parts).encode()


def _parts(value: object) -> Iterator[tuple[str, int]]:
    """Yield the parts of the text, each with the number of its members."""
    if (as_json := getattr(value, "as_json", None)) is not None:
        value = as_json()
    if isinstance(value, dict):
        yield from _object(value)
    elif isinstance(value, list | tuple):
        yield from _array(value)
    else:
        yield _ENCODER.encode(value), 1


def _object(value: dict[Any, Any]) -> Iterator[tuple[str, int]]:
    before, together = "{", dict[Any, Any]()
    for key, each in list(value.items()):
        nested = isinstance(each, _CONTAINERS) and bool(each)
        together[key] = 0 if nested else each
        if nested or len(together) == MEMBERS_TOGETHER:
            text = _ENCODER.encode(together)[1:-1]
            yield before + (text[:-1] if nested else text), len(together)
            before, together = ",", {}
        if nested:
            yield from _parts(each)
    yield _end(before, _ENCODER.encode(together)[1:-1], "{}"), len(together)


def _array(value: list[Any] | tuple[Any, ...]) -> Iterator[tuple[str, int]]:
    before, together = "[", list[Any]()
    for each in list(value):
        nested = isinstance(each, _CONTAINERS) and bool(each)
        if not nested:
            together.append(each)
        if together and (nested or len(together) == MEMBERS_TOGETHER):
            yield before + _ENCODER.encode(together)[1:-1], len(together)
            before, together = ",", []
        if nested:
            yield before, 1
            yield from _parts(each)
            before = ","
    yield _end(before, _ENCODER.encode(together)[1:-1], "[]"), len(together)


def _end(before: str, rest: str, ends: str) -> str:
    """Return the last members and the bracket behind them; `before` is the opening one if there are no others."""
    return (before + rest if rest or before == ends[0] else "") + ends[1]

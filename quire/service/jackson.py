"""JSON spaced as the originals' servers space it, with Jackson's pretty printer: a member of an object a line, arrays
in one.

{
  "id" : 7,
  "ensembles" : [ {
    "bookie" : "b:1"
  }, {
    "bookie" : "b:2"
  } ],
  "custom" : { }
}
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Final

import trio
from starlette.responses import Response

STEP_CHARACTERS: Final = 16_384
"""Characters of an object that is written in steps, after which other tasks may run."""


def decoded(body: bytes) -> Any:
    """Return the JSON value in a body. ValueError: it is none, or is nested more deeply than any that is wanted."""
    try:
        return json.loads(body)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def as_json(value: object) -> Response:
    """Return 200 with a value of dicts, lists, texts, numbers, true, false and null."""
    return Response(pretty(value), media_type="application/json")


async def object_in_steps(members: Iterable[tuple[str, object]]) -> Response:
    """Return 200 with an object of these members, which are made and written in short steps."""
    steps = writing(members)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return Response(done.value, media_type="application/json")
        await trio.lowlevel.checkpoint()


def writing(members: Iterable[tuple[str, object]]) -> Generator[None, None, bytes]:
    """Write an object as `pretty` does; yield between two steps. Return the text in UTF-8.

    >>> steps = writing([("7", None)])
    >>> try: next(steps)
    ... except StopIteration as done: print(done.value.decode())
    {
      "7" : null
    }
    """
    parts = [b"{"]
    step: list[str] = []
    length = 0
    before = "\n"
    for name, value in members:
        step.append(f"  {json.dumps(name)} : {pretty(value, 1)}")
        length += len(step[-1])
        if length >= STEP_CHARACTERS:
            parts.append((before + ",\n".join(step)).encode())
            step.clear()
            length, before = 0, ",\n"
            yield
    if step:
        parts.append((before + ",\n".join(step)).encode())
    parts.append(b"\n}" if len(parts) > 1 else b" }")
    return b"".join(parts)


def pretty(value: object, depth: int = 0) -> str:
    """Return the text of a value inside `depth` objects and arrays."""
    if isinstance(value, Mapping):
        if not value:
            return "{ }"
        inner = "  " * (depth + 1)
        members = [f"{inner}{json.dumps(str(name))} : {pretty(each, depth + 1)}" for name, each in value.items()]
        return "{\n" + ",\n".join(members) + f"\n{'  ' * depth}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        # Arrays do not indent what is in them: that is how Jackson's default printer has it.
        return f"[ {', '.join([pretty(each, depth) for each in value])} ]" if value else "[ ]"
    return json.dumps(value)

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
from collections.abc import Mapping, Sequence

from starlette.responses import Response


def as_json(value: object) -> Response:
    """Return 200 with a value of dicts, lists, texts, numbers, true, false and null."""
    return Response(pretty(value), media_type="application/json")


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

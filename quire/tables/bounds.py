"""Start and end of a table, as Python's users give them, as options of the source. Pure.

None, "earliest", "latest"                  the ends of the log
datetime with a zone, ISO 8601, int (ms)    startingTimestamp: the first entry that was published then or later
"12:40"                                     startingOffsets: the next entry, of a topic without partitions
{"x-partition-0": "12:40"}                  startingOffsets
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal

from quire.spark.errors import OptionError

Bound = str | int | datetime | Mapping[str, object] | None
Side = Literal["start", "end"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PREFIX = {"start": "starting", "end": "ending"}
_PLACE = re.compile(r"\d+:\d+(:\d+)?", re.ASCII)
_FORMS = 'give "earliest", "latest", a time with its zone (2026-01-31T12:00:00Z), ms since 1970, or "ledger:entry"'


def bound_options(side: Side, bound: Bound, topics: tuple[str, ...]) -> dict[str, str]:
    """Return the options of the source for a start or an end; none for None. Raises OptionError."""
    offsets, timestamp = f"{_PREFIX[side]}Offsets", f"{_PREFIX[side]}Timestamp"
    if bound is None:
        return {}
    if isinstance(bound, datetime):
        return {timestamp: str(milliseconds(side, bound))}
    if isinstance(bound, Mapping):
        return {offsets: json.dumps(dict(bound))}
    if isinstance(bound, int) and not isinstance(bound, bool):
        if bound < 0:
            raise OptionError(side, str(bound), "a time is in ms since 1970, at least 0")
        return {timestamp: str(bound)}
    if not isinstance(bound, str):
        raise OptionError(side, repr(bound), _FORMS)
    text = bound.strip()
    if text.lower() in ("earliest", "latest"):
        return {offsets: text.lower()}
    if _PLACE.fullmatch(text):
        if len(topics) != 1:
            raise OptionError(side, text, "a position is of one topic: give a mapping of topics to positions")
        return {offsets: json.dumps({topics[0]: text})}
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(side, text, _FORMS) from None
    return {timestamp: str(milliseconds(side, time))}


def milliseconds(side: Side, time: datetime) -> int:
    """Return the first whole millisecond at or after a time. Raises OptionError: it has no zone, or is before 1970."""
    if time.tzinfo is None:
        raise OptionError(side, time.isoformat(), "it has no time zone: add Z or +01:00, or tzinfo=datetime.UTC")
    found = -((_EPOCH - time) // timedelta(milliseconds=1))
    if found < 0:
        raise OptionError(side, time.isoformat(), "it is before 1970")
    return found

"""Start and end of a read, as users write them. Pure.

earliest | latest
{"persistent://public/default/x-partition-0": "12:40", "y": -2}     the next entry; -2 earliest, -1 latest
{"x": {"0": -2, "1": "12:40:3"}}                                    Kafka's form
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from quire.spark.offsets import EARLIEST, EARLIEST_MARK, LATEST, LATEST_MARK, Boundary, Place
from quire.spark.options.table import Use
from quire.spark.options.values import Given
from quire.spark.topics import PARTITION_MARK, full_name


def boundaries(given: Given, use: Use) -> tuple[Boundary, Boundary]:
    """Return where a read begins without a checkpoint, and where a batch read ends. Raises OptionError."""
    starting = _boundary(given, "startingOffsets", "startingTimestamp", "latest" if use == "stream" else "earliest")
    ending = _boundary(given, "endingOffsets", "endingTimestamp", "latest")
    if use == "batch":
        if starting.kind == "latest" or _all_are(starting, LATEST_MARK):
            raise given.refuse("startingOffsets", "a batch read from the latest entry has no rows: give where to begin")
        if ending.kind == "earliest" or any(place == EARLIEST_MARK for _, place in ending.places):
            raise given.refuse("endingOffsets", "a batch read up to the earliest entry has no rows: give where to end")
        if any(isinstance(place, Place) and place.batch_index for _, place in ending.places):
            raise given.refuse(
                "endingOffsets", "a read ends between entries: give ledger:entry, the first one not to read"
            )
    return starting, ending


def _all_are(boundary: Boundary, mark: int) -> bool:
    """Decide whether every place named is `mark`. One partition of several may be left out of a read that way."""
    return bool(boundary.places) and all(place == mark for _, place in boundary.places)


def _boundary(given: Given, name: str, time_name: str, default: str) -> Boundary:
    if time_name in given:
        if name in given:
            raise given.refuse(name, f"{time_name} is given too: leave one of them out")
        return Boundary(kind="timestamp", timestamp_ms=_timestamp(given, time_name))
    text = given.text(name, default)
    if text.lower() == "earliest":
        return EARLIEST
    if text.lower() == "latest":
        return LATEST
    try:
        data = json.loads(text, object_pairs_hook=_pairs)
    except ValueError as error:
        raise given.refuse(name, f"give earliest, latest, or JSON ({error})") from None
    if not isinstance(data, dict) or not data:
        raise given.refuse(name, 'give earliest, latest, or JSON: {"topic-partition-0": "ledger:entry", ...}')
    try:
        return Boundary(kind="places", places=_places(data))
    except ValueError as error:
        raise given.refuse(name, str(error)) from None


def _timestamp(given: Given, name: str) -> int:
    if given.text(name).startswith("{"):
        raise given.refuse(name, "one time is for all partitions: give ms since 1970")
    return given.integer(name, 0, 0)


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _places(data: Mapping[str, object]) -> tuple[tuple[str, Place | int], ...]:
    """ValueError."""
    found: dict[str, Place | int] = {}
    for key, value in data.items():
        topic = full_name(key)
        pairs = [(topic, value)]
        if isinstance(value, dict):
            pairs = [(_partition_of(topic, number), inner) for number, inner in value.items()]
        for name, given in pairs:
            if name in found:
                raise ValueError(f"{name} is named twice")
            found[name] = _place(name, given)
    return tuple(sorted(found.items()))


def _partition_of(topic: str, number: str) -> str:
    if not re.fullmatch(r"0|[1-9]\d{0,8}", number, re.ASCII):
        raise ValueError(f"{number!r} is not the number of a partition of {topic}")
    return f"{topic}{PARTITION_MARK}{number}"


def _place(name: str, value: object) -> Place | int:
    if isinstance(value, str):
        if value in (str(EARLIEST_MARK), str(LATEST_MARK)):
            return int(value)
        try:
            return Place.parse(value)
        except ValueError as error:
            raise ValueError(f"{error}, at {name}; -2 is earliest, -1 latest") from None
    if type(value) is int and value in (EARLIEST_MARK, LATEST_MARK):
        return value
    if isinstance(value, list):
        raise ValueError(
            f"{name} has an array, as pulsar-spark writes serialized message ids: give the entry behind it as"
            ' "ledger:entry", for offsets here are what is read next'
        )
    if type(value) is int:
        raise ValueError(f'{name} has the number {value}: topics have no numbered offsets, give "ledger:entry"')
    raise ValueError(f'{name} has {value!r}: give "ledger:entry[:batch]", -2 (earliest) or -1 (latest)')

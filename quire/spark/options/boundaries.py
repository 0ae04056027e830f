"""Start and end of a read, as users write them. Pure.

earliest | latest
{"persistent://public/default/x-partition-0": "12:40", "y": -2}     the next entry; -2 earliest, -1 latest
{"x": {"0": -2, "1": "12:40:3"}}                                    Kafka's form
{"x": {"0": 1700000000000}, "y": 1700000000000}                     by time: ms since 1970
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from quire.spark.offsets import EARLIEST, EARLIEST_MARK, LATEST, LATEST_MARK, Boundary, Place
from quire.spark.options.table import Use
from quire.spark.options.values import Given
from quire.spark.topics import PARTITION_MARK, full_name

STRATEGY = "startingOffsetsByTimestampStrategy"
TIME_MAX_MS = (1 << 63) - 1


def boundaries(given: Given, use: Use) -> tuple[Boundary, Boundary]:
    """Return where a read begins without a checkpoint, and where a batch read ends. Raises OptionError."""
    starting = _boundary(given, "starting", "latest" if use == "stream" else "earliest")
    ending = _boundary(given, "ending", "latest")
    strategy = given.choice(STRATEGY, "latest", ("latest", "error"))
    if STRATEGY in given:
        if starting.kind not in ("timestamp", "timestamps"):
            raise given.refuse(STRATEGY, "it is for startingOffsetsByTimestamp or startingTimestamp: give one of them")
        starting = replace(starting, must_exist=strategy == "error")
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


def _boundary(given: Given, what: str, default: str) -> Boundary:
    name, time_name, times_name = f"{what}Offsets", f"{what}Timestamp", f"{what}OffsetsByTimestamp"
    named = [each for each in (name, time_name, times_name) if each in given]
    if len(named) > 1:
        raise given.refuse(named[0], f"{named[1]} is given too: leave one of them out")
    if time_name in given:
        return Boundary(kind="timestamp", timestamp_ms=_timestamp(given, time_name))
    if times_name in given:
        return Boundary(kind="timestamps", places=_times(given, times_name))
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
        raise given.refuse(
            name, f"one time is for all partitions: give ms since 1970, or {name[:-9]}OffsetsByTimestamp"
        )
    return given.integer(name, 0, 0)


def _times(given: Given, name: str) -> tuple[tuple[str, int], ...]:
    """Return the time of each partition, or of each topic."""
    form = 'give JSON with ms since 1970: {"topic": {"0": 1700000000000}} or {"topic": 1700000000000}'
    try:
        data = json.loads(given.text(name), object_pairs_hook=_pairs)
        if not isinstance(data, dict) or not data:
            raise ValueError("it is no object with topics")
        found: dict[str, int] = {}
        for each, value in _flat(data):
            if type(value) is not int or not 0 <= value <= TIME_MAX_MS:
                raise ValueError(f"{each} has {value!r}")
            found[each] = value
    except ValueError as error:
        raise given.refuse(name, f"{form} ({error})") from None
    return tuple(sorted(found.items()))


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _flat(data: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield full names, of topics and partitions, with their values. Raises ValueError."""
    seen: set[str] = set()
    for key, value in data.items():
        topic = full_name(key)
        pairs = [(topic, value)]
        if isinstance(value, dict):
            pairs = [(_partition_of(topic, number), inner) for number, inner in value.items()]
        for name, given in pairs:
            if name in seen:
                raise ValueError(f"{name} is named twice")
            seen.add(name)
            yield name, given


def _places(data: Mapping[str, object]) -> tuple[tuple[str, Place | int], ...]:
    """ValueError."""
    return tuple(sorted((name, _place(name, given)) for name, given in _flat(data)))


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

"""Offsets: the next message to read of each partition, in a form that people can read and Spark compares as text. Pure.

    {"v": 1, "p": {"persistent://public/default/x-partition-0": [12, 40], ...}}

[ledger, entry] is the next entry to read; the entry need not exist (yet, or any more). A third number, the index in the
batch of the next message, occurs only where a user started in the middle of a batch, and goes with the first batch
read.

What holds: equal offsets have equal text (keys are sorted; Spark takes another text for news and runs empty batches for
ever); a partition that is not in there begins at its earliest entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from quire.spark.errors import OffsetError

VERSION = 1
ID_MAX = (1 << 63) - 1

_PLACE = re.compile(r"(\d{1,19}):(\d{1,19})(?::(\d{1,9}))?", re.ASCII)


class Place(NamedTuple):
    """The next entry to read of a log, and the first message of its batch. Ordered as the log is: ledger ids only grow.

    >>> Place.parse("12:40:3")
    Place(ledger_id=12, entry_id=40, batch_index=3)
    >>> str(Place(12, 40))
    '12:40'
    """

    ledger_id: int
    entry_id: int
    batch_index: int = 0
    """Number of messages of the entry to leave out, from its start."""

    @classmethod
    def parse(cls, text: str) -> Place:
        """Parse `ledger:entry[:batch]`. Raises ValueError."""
        match = _PLACE.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not ledger:entry[:batch]")
        place = cls(int(match[1]), int(match[2]), int(match[3] or 0))
        if max(place) > ID_MAX:
            raise ValueError(f"{text!r} has a number above 2^63 - 1")
        return place

    def __str__(self) -> str:
        text = f"{self.ledger_id}:{self.entry_id}"
        return f"{text}:{self.batch_index}" if self.batch_index else text


EARLIEST_MARK = -2
LATEST_MARK = -1
"""Marks in offsets given by a user, the same as Kafka's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Start or end given by a user, not yet looked up: `planning.ranges.resolve` makes offsets of it."""

    kind: Literal["earliest", "latest", "places", "timestamp", "timestamps"]
    places: tuple[tuple[str, Place | int], ...] = ()
    """Full name of a partition (or of a partitioned topic, for a mark only) and its place, or EARLIEST_MARK,
    LATEST_MARK. With kind `timestamps`: a name and its time in ms since 1970."""
    must_exist: bool = False
    """With a time: refuse a partition that has no entry of it or later, which otherwise begins at its end."""
    timestamp_ms: int = 0
    """Publish time in ms since 1970: the first entry that is not older."""


EARLIEST = Boundary(kind="earliest")
LATEST = Boundary(kind="latest")


class Offsets(Mapping[str, Place]):
    """Offsets by partition (full name). Immutable; iterates by name."""

    __slots__ = ("_places",)

    def __init__(self, places: Mapping[str, Place] | None = None) -> None:
        self._places: dict[str, Place] = dict(sorted((places or {}).items()))

    def __getitem__(self, partition: str) -> Place:
        return self._places[partition]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __hash__(self) -> int:
        return hash(tuple(self._places.items()))

    def __repr__(self) -> str:
        return f"Offsets({self.to_json_dict()['p']})"

    def with_places(self, places: Mapping[str, Place]) -> Offsets:
        """Return offsets with these places replaced; the others stay."""
        return Offsets({**self._places, **places})

    def to_json_dict(self) -> dict[str, object]:
        """Return the dict given to Spark, which stores `json.dumps` of it."""
        return {
            "v": VERSION,
            "p": {name: list(place if place.batch_index else place[:2]) for name, place in self._places.items()},
        }

    def text(self) -> str:
        """Return the exact text that Spark stores and compares. Source: pyspark's python_streaming_source_runner
        (json.dumps)."""
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_json(cls, value: Mapping[str, object] | str) -> Offsets:
        """Parse the result of `to_json_dict` or `text`. Raises OffsetError: another format, or a newer version."""
        data: object = value
        if isinstance(value, str):
            try:
                data = json.loads(value)
            except ValueError as error:
                raise OffsetError(f"an offset that is no JSON ({error}): {_shown(value)}") from None
        if not isinstance(data, Mapping) or "v" not in data:
            raise OffsetError(f"an offset of another source: {_shown(value)}; this checkpoint is not of a quire stream")
        if data["v"] != VERSION:
            raise OffsetError(
                f"an offset of version {data['v']!r}; this quire reads version {VERSION}: install a newer one"
            )
        places = data.get("p")
        if not isinstance(places, Mapping):
            raise OffsetError(f"an offset without places: {_shown(value)}")
        return cls({str(name): _place(name, numbers) for name, numbers in places.items()})


def _place(name: object, numbers: object) -> Place:
    if (
        not isinstance(numbers, list | tuple)
        or not 2 <= len(numbers) <= 3
        or any(type(number) is not int or not 0 <= number <= ID_MAX for number in numbers)
    ):
        raise OffsetError(f"the offset of {name} is {_shown(numbers)}, not [ledger, entry]")
    return Place(*cast("list[int]", numbers))


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 200 else text[:200] + "..."

"""Histories of clients: records of 40 bytes each, written to a file by a client and read by the checker.

    offset  size
      0      1    what (`What`)
      1      1    topic, by number
      2      1    consumer, by number; 0 of a producer
      3      1    0
      4      4    sequence: number of the message in its topic, from 0
      8      8    time in microseconds of the wall clock
     16      8    ledger      of the receipt or the delivery, else -1
     24      8    entry
     32      4    batch index, -1 for a message of its own
     36      4    number of the key

Little endian. Records of one file are in the order in which they were written.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from struct import Struct
from typing import BinaryIO, NamedTuple

RECORD = Struct("<BBBxIqqqii")
PAYLOAD_SIZE = 256


class What(IntEnum):
    SENT = 1
    """Right before it was passed to the client."""
    RECEIPT = 2
    """Receipt: stored at this position."""
    FAILED = 3
    """Failure: not stored, or unknown."""
    DELIVERED = 4
    ACKNOWLEDGED = 5
    """Right after it was passed to the client."""
    STRANGE = 6
    """Delivered, and not equal to any sent message."""


class Record(NamedTuple):
    what: int
    topic: int
    consumer: int
    sequence: int
    at_us: int
    ledger: int = -1
    entry: int = -1
    batch: int = -1
    key: int = 0

    @property
    def position(self) -> tuple[int, int, int]:
        return self.ledger, self.entry, self.batch


def write(file: BinaryIO, record: Record) -> None:
    """Append a record; from any thread."""
    file.write(RECORD.pack(*record))


def read(path: Path) -> Iterator[Record]:
    """Return all records of a file, in its order."""
    for fields in RECORD.iter_unpack(path.read_bytes()):
        yield Record._make(fields)


def payload_of(topic: int, sequence: int, key: int) -> bytes:
    """Return a payload that identifies itself, padded to size.

    >>> parse_payload(payload_of(3, 17, 1))
    (3, 17, 1)
    """
    return f"{topic} {sequence} {key} ".encode().ljust(PAYLOAD_SIZE, b".")


def parse_payload(payload: bytes) -> tuple[int, int, int] | None:
    """Return topic, sequence and key; None for an unknown payload."""
    parts = payload.split(b" ", 3)
    if len(parts) != 4 or not all(part.isdigit() for part in parts[:3]):
        return None
    topic, sequence, key = (int(part) for part in parts[:3])
    return (topic, sequence, key) if payload == payload_of(topic, sequence, key) else None


def now_us() -> int:
    return time.time_ns() // 1000


# --- when connections broke, from the log of the official client

_HEAD = r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.(\d{3}) .*\[(persistent://[^ ,]*-(\d+), [^]]*)\] "
_CHANGE = re.compile(_HEAD + r"(Schedule reconnection|Created (?:producer|consumer) on)", re.MULTILINE)
FOR_EVER = 1 << 62


class Break(NamedTuple):
    """Time during which a producer or a consumer had no connection, in microseconds."""

    begun_us: int
    ended_us: int


class Breaks:
    """Breaks of the connections of topics' producers or consumers, by number of the topic."""

    def __init__(self, found: dict[int, list[Break]]) -> None:
        self._breaks = {topic: sorted(breaks) for topic, breaks in found.items()}

    @classmethod
    def of_log(cls, text: str) -> Breaks:
        """Read a client's log, of a process in UTC. Topics' names end with their numbers."""
        found: dict[int, list[Break]] = {}
        begun: dict[str, tuple[int, int]] = {}
        for second, milli, handler, topic, what in _CHANGE.findall(text):
            at = datetime.strptime(second, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
            at_us = int(at.timestamp()) * 1_000_000 + int(milli) * 1000
            if what.startswith("Schedule"):
                begun.setdefault(handler, (int(topic), at_us))
            elif handler in begun:
                number, begun_us = begun.pop(handler)
                found.setdefault(number, []).append(Break(begun_us, at_us))
        for number, begun_us in begun.values():
            found.setdefault(number, []).append(Break(begun_us, FOR_EVER))
        return cls(found)

    def first_in(self, topic: int, first_us: int, last_us: int) -> int | None:
        """Return the start of the first break that began from `first_us` to `last_us` (inclusive); None if there is
        none."""
        breaks = self._breaks.get(topic, [])
        place = bisect_left(breaks, (first_us,))
        return breaks[place].begun_us if place < len(breaks) and breaks[place].begun_us <= last_us else None

    def during(self, topic: int, first_us: int, last_us: int) -> int | None:
        """Return the start of the last break that overlaps that time; None if there is none."""
        for each in reversed(self._breaks.get(topic, [])):
            if each.begun_us <= last_us and each.ended_us >= first_us:
                return each.begun_us
        return None

    def __len__(self) -> int:
        return sum(map(len, self._breaks.values()))

"""Message ids as the admin API writes them in JSON, and the positions they stand for.

    {"ledgerId": 12, "entryId": 7, "partitionIndex": -1, "batchIndex": -1, "isExcluded": false}
    {"ledgerId": -1, "entryId": -1}         earliest, also the string "earliest"
    both 2^63-1                             latest, also the string "latest"

Java's mapper writes the last field as `excluded`. A batch index counts where a cursor is reset.
Source: Pulsar's ResetCursorData and MessageIdImpl.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.admin.errors import MalformedRequestError
from broker.admin.requests import INT32_MAX, INT64_MAX, PROPERTIES
from quire.ledger.position import EARLIEST, LATEST, Position
from quire.service.web.shapes import Either, OneText, Record, Truth, Whole
from quire.wire.pulsar.names import TopicName

_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_INDEX = Whole(-1, INT32_MAX)
_PLACE = Whole(-1, INT64_MAX)
_BODY = Either(
    (
        OneText(tuple(_WORDS)),
        Record(
            {
                "ledgerId": _PLACE,
                "entryId": _PLACE,
                "partitionIndex": _INDEX,
                "batchIndex": _INDEX,
                "isExcluded": Truth(),
                "excluded": Truth(),
                "properties": PROPERTIES,
            },
            needed=("ledgerId", "entryId"),
        ),
    )
)


@dataclass(frozen=True, slots=True)
class GivenId:
    """A message id of a body."""

    position: Position
    batch_index: int = -1
    """Message of the batch there; -1: the whole entry."""
    excluded: bool = False
    """Sign that the next message is meant."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of a subscription that begins there."""


def parse(body: object) -> GivenId:
    """Return the message id of a body; an empty body means the latest. Raises MalformedRequestError."""
    if body is None:
        return GivenId(LATEST)
    found = _BODY.check(body, "a message id", MalformedRequestError)
    if isinstance(found, str):
        return GivenId(_WORDS[found])
    return GivenId(
        Position(found["ledgerId"], found["entryId"]),
        found.get("batchIndex", -1),
        found.get("isExcluded", found.get("excluded", False)),
        found.get("properties", {}),
    )


def next_entry(found: GivenId) -> Position:
    """Return the entry to deliver next."""
    if found.position in (EARLIEST, LATEST) or not found.excluded:
        return found.position
    return Position(found.position.ledger_id, found.position.entry_id + 1)


def message_id(found: Position, name: TopicName, batch_index: int = -1) -> dict[str, int]:
    """Return the JSON of a position in a topic, or in a partition; of a message of a batch with its index."""
    return {
        "ledgerId": found.ledger_id,
        "entryId": found.entry_id,
        "partitionIndex": name.partition,
        "batchIndex": batch_index,
        "batchSize": 0,
    }

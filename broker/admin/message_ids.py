"""Message ids as the admin API writes them in JSON, and the positions they stand for.

    {"ledgerId": 12, "entryId": 7, "partitionIndex": -1, "batchIndex": -1, "isExcluded": false}
    {"ledgerId": -1, "entryId": -1}         earliest, also the string "earliest"
    both 2^63-1                             latest, also the string "latest"

Java's mapper writes the last field as `excluded`. A batch index counts where a cursor is reset.
Source: Pulsar's ResetCursorData and MessageIdImpl.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.admin.errors import MalformedRequestError
from broker.admin.requests import INT32_MAX, INT64_MAX, integer
from quire.ledger.position import EARLIEST, LATEST, Position
from quire.wire.pulsar.names import TopicName

_WORDS = {"earliest": EARLIEST, "latest": LATEST}


@dataclass(frozen=True, slots=True)
class GivenId:
    """A message id of a body."""

    position: Position
    batch_index: int = -1
    """Message of the batch there; -1: the whole entry."""
    excluded: bool = False
    """Sign that the next message is meant."""


def parse(body: object) -> GivenId:
    """Return the message id of a body; an empty body means the latest. Raises MalformedRequestError."""
    if body is None:
        return GivenId(LATEST)
    if isinstance(body, str):
        if body not in _WORDS:
            raise MalformedRequestError(f"{body[:100]!a} is neither a message id, nor `earliest`, nor `latest`")
        return GivenId(_WORDS[body])
    if not isinstance(body, dict):
        raise MalformedRequestError("a message id must be an object with ledgerId and entryId")
    found = Position(_id(body, "ledgerId"), _id(body, "entryId"))
    indexes = [
        integer(body.get(name, -1), name, minimum=-1, maximum=INT32_MAX) for name in ("partitionIndex", "batchIndex")
    ]
    excluded = body.get("isExcluded", body.get("excluded", False))
    if not isinstance(excluded, bool):
        raise MalformedRequestError("isExcluded must be true or false")
    return GivenId(found, indexes[1], excluded)


def position(body: object) -> Position:
    """Return the entry to deliver next; an empty body means the latest. Raises MalformedRequestError."""
    found = parse(body)
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


def _id(body: dict[str, object], name: str) -> int:
    return integer(body.get(name), name, minimum=-1, maximum=INT64_MAX)

"""Message ids as the admin API writes them in JSON, and the positions they stand for.

    {"ledgerId": 12, "entryId": 7, "partitionIndex": -1, "batchIndex": -1, "isExcluded": false}
    {"ledgerId": -1, "entryId": -1}         earliest, also the string "earliest"
    both 2^63-1                             latest, also the string "latest"

Java's mapper writes the last field as `excluded`. A batch index is read and has no effect: an entry is delivered whole.
Source: Pulsar's ResetCursorData and MessageIdImpl.
"""

from __future__ import annotations

from broker.admin.errors import MalformedRequestError
from broker.admin.requests import INT32_MAX, INT64_MAX, integer
from quire.ledger.position import EARLIEST, LATEST, Position
from quire.wire.pulsar.names import TopicName

_WORDS = {"earliest": EARLIEST, "latest": LATEST}


def position(body: object) -> Position:
    """Return the entry to deliver next; an empty body means the latest. Raises MalformedRequestError."""
    if body is None:
        return LATEST
    if isinstance(body, str):
        if body not in _WORDS:
            raise MalformedRequestError(f"{body[:100]!a} is neither a message id, nor `earliest`, nor `latest`")
        return _WORDS[body]
    if not isinstance(body, dict):
        raise MalformedRequestError("a message id must be an object with ledgerId and entryId")
    found = Position(_id(body, "ledgerId"), _id(body, "entryId"))
    for name in ("partitionIndex", "batchIndex"):
        integer(body.get(name, -1), name, minimum=-1, maximum=INT32_MAX)
    excluded = body.get("isExcluded", body.get("excluded", False))
    if not isinstance(excluded, bool):
        raise MalformedRequestError("isExcluded must be true or false")
    if found in (EARLIEST, LATEST) or not excluded:
        return found
    return Position(found.ledger_id, found.entry_id + 1)


def message_id(found: Position, name: TopicName) -> dict[str, int]:
    """Return the JSON of a position in a topic, or in a partition."""
    return {"ledgerId": found.ledger_id, "entryId": found.entry_id, "partitionIndex": name.partition}


def _id(body: dict[str, object], name: str) -> int:
    return integer(body.get(name), name, minimum=-1, maximum=INT64_MAX)

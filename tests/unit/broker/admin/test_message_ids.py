"""broker.admin.message_ids"""

from __future__ import annotations

import pytest

from broker.admin.errors import MalformedRequestError
from broker.admin.message_ids import message_id, next_entry, parse
from quire.ledger.position import EARLIEST, LATEST, Position
from quire.wire.pulsar.names import TopicName

MAX = (1 << 63) - 1


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (None, LATEST),
        ("latest", LATEST),
        ("earliest", EARLIEST),
        ({"ledgerId": MAX, "entryId": MAX}, LATEST),
        ({"ledgerId": -1, "entryId": -1, "partitionIndex": -1}, EARLIEST),
        ({"ledgerId": 12, "entryId": 7, "partitionIndex": 3, "batchIndex": 2}, Position(12, 7)),
        ({"ledgerId": 12, "entryId": -1}, Position(12, -1)),
        ({"ledgerId": 12, "entryId": 7, "isExcluded": False}, Position(12, 7)),
        ({"ledgerId": 12, "entryId": 7, "isExcluded": True}, Position(12, 8)),
        ({"ledgerId": 12, "entryId": 7, "excluded": True}, Position(12, 8)),
        ({"ledgerId": -1, "entryId": -1, "isExcluded": True}, EARLIEST),
        ({"ledgerId": MAX, "entryId": MAX, "isExcluded": True}, LATEST),
    ],
)
def test_a_message_id_is_the_entry_delivered_next(body: object, found: Position) -> None:
    assert next_entry(parse(body)) == found


@pytest.mark.parametrize(
    "body",
    [
        "first",
        "1:2",
        7,
        [],
        True,
        {},
        {"ledgerId": 1},
        {"entryId": 1},
        {"ledgerId": 1, "entryId": "1"},
        {"ledgerId": 1, "entryId": 1.5},
        {"ledgerId": True, "entryId": 1},
        {"ledgerId": None, "entryId": 1},
        {"ledgerId": -2, "entryId": 1},
        {"ledgerId": MAX + 1, "entryId": 1},
        {"ledgerId": 1, "entryId": 1, "batchIndex": "0"},
        {"ledgerId": 1, "entryId": 1, "partitionIndex": 1 << 31},
        {"ledgerId": 1, "entryId": 1, "isExcluded": "yes"},
    ],
)
def test_what_is_no_message_id_is_refused(body: object) -> None:
    with pytest.raises(MalformedRequestError):
        next_entry(parse(body))


def test_a_message_id_of_a_partition_names_it() -> None:
    plain, partition = TopicName.parse("t"), TopicName.parse("t-partition-4")
    entry = {"ledgerId": 1, "entryId": 2, "batchIndex": -1, "batchSize": 0}
    assert message_id(Position(1, 2), plain) == {**entry, "partitionIndex": -1}
    assert message_id(Position(1, 2), partition) == {**entry, "partitionIndex": 4}

from __future__ import annotations

import pickle

import pulsar
import pytest

from quire.client.message_id import MessageId
from tests.support.refusals import refuses


@pytest.mark.parametrize(
    "place",
    [MessageId(3, 7), MessageId(1 << 40, 0, 12, 4), MessageId.EARLIEST, MessageId.LATEST, MessageId(5, 6, 0, 0)],
)
def test_a_message_id_survives_its_bytes_its_text_and_pickle(place: MessageId) -> None:
    assert MessageId.from_bytes(place.to_bytes()) == place
    assert pickle.loads(pickle.dumps(place)) == place
    assert MessageId.parse(str(place)) == place._replace(partition=-1)


def test_the_official_client_reads_our_bytes_and_writes_the_same() -> None:
    theirs = pulsar.MessageId.deserialize(MessageId(3, 7, 2, 1).to_bytes(batch_size=5))
    assert (theirs.ledger_id(), theirs.entry_id(), theirs.partition(), theirs.batch_index()) == (3, 7, 2, 1)
    assert MessageId(3, 7, 2, 1).to_bytes() == pulsar.MessageId(2, 3, 7, 1).serialize()
    assert MessageId.EARLIEST.to_bytes() == pulsar.MessageId.earliest.serialize()
    assert MessageId.LATEST.to_bytes() == pulsar.MessageId.latest.serialize()


def test_message_ids_are_ordered_as_the_topic_is() -> None:
    ids = [MessageId.EARLIEST, MessageId(1, 9), MessageId(2, 0), MessageId(2, 0, batch_index=1), MessageId.LATEST]
    assert sorted(reversed(ids)) == ids


@pytest.mark.parametrize("text", ["", "1", "1:2:3:4", "a:b", "1:-2", f"{1 << 63}:0"])
def test_what_is_no_message_id_is_a_value_error(text: str) -> None:
    refuses(ValueError, lambda: MessageId.parse(text), "is not a message id")


@pytest.mark.parametrize("data", [b"", b"\x08\x01", b"\xff"])
def test_bytes_that_are_no_message_id_are_a_value_error(data: bytes) -> None:
    refuses(ValueError, lambda: MessageId.from_bytes(data), "not a message id")

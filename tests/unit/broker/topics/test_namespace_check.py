"""broker.topics.namespace_check: what the policies of a namespace say is obeyed at once, however often it was asked."""

from __future__ import annotations

from typing import Any

import pytest

from broker.errors import TopicNotFoundError
from broker.ownership.values import encode_json
from broker.topics import namespace_check
from broker.topics.namespace_check import NamespaceCheck
from quire.metadata.store import ANY_VERSION
from quire.wire.pulsar.names import TopicName
from tests.support.refusals import raises
from tests.unit.broker.peers import TOPIC, Room

NAME = TopicName.parse(TOPIC)
PATH = "/admin/policies/public/default"


async def test_a_namespace_that_is_being_deleted_takes_no_topics_from_that_moment_on(room: Room) -> None:
    metadata = room.cluster.stores[0]
    check = NamespaceCheck(metadata)
    await check.takes_topics(NAME)
    await metadata.put(PATH, encode_json({"deleted": True}), ANY_VERSION)
    for _ in range(2):
        await raises(TopicNotFoundError, check.takes_topics(NAME), match="being deleted")
    await metadata.put(PATH, encode_json({}), ANY_VERSION)
    await check.takes_topics(NAME)
    await metadata.delete(PATH, ANY_VERSION)
    await raises(TopicNotFoundError, check.takes_topics(NAME), match="does not exist")


async def test_unchanged_policies_are_decoded_once_for_thousands_of_topics(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = []

    def decode(value: bytes, what: str) -> dict[str, Any]:
        decoded.append(what)
        return {}

    monkeypatch.setattr(namespace_check, "decode_json", decode)
    check = NamespaceCheck(room.cluster.stores[0])
    for _ in range(3):
        await check.takes_topics(NAME)
    assert len(decoded) == 1

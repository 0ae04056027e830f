"""broker.topics.takeover: topics are not loaded, and so not trimmed, while their stored
policies would not be obeyed."""

from __future__ import annotations

import pytest
from trio.testing import wait_all_tasks_blocked

from broker.errors import UnsupportedPoliciesError
from broker.ownership.values import encode_json
from broker.topics.policies import topic_path
from managed_ledger.stored_list import log_path
from quire.metadata.store import ANY_VERSION
from quire.service.log import Event
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from tests.unit.broker.peers import TOPIC, Room, in_broker

NAME = TopicName.parse(TOPIC)
POLICIES = "/admin/policies/public/default"
OFFLOADED = {"managedLedgerOffloadDriver": "aws-s3"}
EVENTS = "public/default/persistent/__change_events"


async def store(room: Room, path: str, value: bytes) -> None:
    metadata = room.cluster.stores[0]
    if await metadata.get(path) is None:
        await metadata.create(path, value, make_parents=True)
    else:
        await metadata.put(path, value, ANY_VERSION)


async def refused(room: Room) -> str:
    with pytest.raises(UnsupportedPoliciesError) as caught:
        await room.broker.topics.get(NAME)
    assert await room.cluster.stores[0].get(log_path(NAME.managed_ledger_path)) is None, "it was opened, or made"
    return str(caught.value)


async def test_a_namespace_with_policies_that_are_not_obeyed_is_not_taken_over(
    log_events: list[Event], room: Room
) -> None:
    async def test(room: Room) -> None:
        await store(room, POLICIES, encode_json({"offload_policies": OFFLOADED, "migrated": True}))
        why = await refused(room)
        for part in (TOPIC, "offload_policies", "migrated", "--accept-unsupported-policies"):
            assert part in why
        await refused(room)
        assert list(room.broker.topics.takeover.refused) == ["public/default"]
        peer = await room.connect()
        peer.ask_subscribe()
        code, text = await peer.error()
        assert code == pb.NotAllowedError
        assert "offload_policies" in text
        # When the policy is removed, the topic is loaded.
        await store(room, POLICIES, encode_json({"subscription_auth_mode": "None"}))
        await wait_all_tasks_blocked()  # the change is known
        assert await room.broker.topics.get(NAME)
        assert room.broker.topics.takeover.refused == {}

    await test(room)
    assert [event["namespace"] for event in log_events if "not loaded: unsupported policies" in event["event"]] == [
        "public/default"
    ]


async def test_a_topic_with_policies_of_its_own_that_are_not_obeyed_is_not_taken_over(room: Room) -> None:
    await store(room, topic_path(NAME), encode_json({"isGlobal": False, "shadowTopics": ["a"]}))
    assert f"policies of {TOPIC}: shadowTopics" in await refused(room)
    other = TopicName.parse("persistent://public/default/other")
    assert await room.broker.topics.get(other)


async def test_a_topic_for_policies_to_which_nothing_was_written_is_no_hindrance(room: Room) -> None:
    async with room.cluster.broker() as pulsar:
        await pulsar.open(EVENTS)
        assert await room.broker.topics.get(NAME)


async def test_the_operator_may_accept_that_policies_are_not_obeyed(log_events: list[Event]) -> None:
    async def test(room: Room) -> None:
        await store(room, POLICIES, encode_json({"offload_policies": OFFLOADED}))
        assert await room.broker.topics.get(NAME)
        assert await room.broker.topics.get(TopicName.parse("persistent://public/default/other"))

    async with in_broker(accept_unsupported_policies=True) as room:
        await test(room)
    accepted = [event for event in log_events if "accepting policies" in event["event"]]
    assert [(event["namespace"], "offload_policies" in event["reason"]) for event in accepted] == [
        ("public/default", True)
    ]

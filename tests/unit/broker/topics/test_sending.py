"""Policies about producers, messages and types of subscriptions: broker.topics.life.sending, limits.check_type."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from broker.ownership.values import encode_json
from quire.metadata.store import ANY_VERSION
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import SUB, C, entry
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Peer, Room, in_broker

NAME = TopicName.parse(TOPIC)
DIRECT = "non-persistent://public/default/orders"
KEYS: dict[str, Any] = {"encryption_keys": [pb.EncryptionKeys(key="k", value=b"v")]}
CHANGE_EVENTS = "persistent://public/default/__change_events"


async def require(room: Room, **policies: Any) -> None:
    """Give the namespace these policies; return when the broker knows them."""
    await room.cluster.stores[0].put("/admin/policies/public/default", encode_json(policies), ANY_VERSION)
    await trio.testing.wait_all_tasks_blocked()


async def send_error(peer: Peer) -> tuple[int, pb.ServerError, str]:
    found = (await peer.expect(C.SEND_ERROR)).send_error
    return found.sequence_id, found.error, found.message


# Encryption


@pytest.mark.parametrize("topic", [TOPIC, DIRECT])
async def test_producers_that_do_not_encrypt_are_refused_where_encryption_is_required(room: Room, topic: str) -> None:
    await require(room, encryption_required=True)
    peer = await room.connect()
    peer.ask_producer(topic)
    code, text = await peer.error()
    assert (code, text) == (pb.MetadataError, f"Encryption is required in {topic}")
    peer.ask_producer(topic, 2)  # the topic is loaded now
    assert (await peer.error())[0] == pb.MetadataError
    await peer.producer(topic, 3, encrypted=True)


@pytest.mark.parametrize("topic", [TOPIC, DIRECT])
async def test_only_encrypted_messages_are_taken_where_encryption_is_required(room: Room, topic: str) -> None:
    await require(room, encryption_required=True)
    peer = await room.connect()
    await peer.producer(topic, encrypted=True)
    await peer.publish(b"a", **KEYS)
    peer.send_message(b"plain", 1)
    assert await send_error(peer) == (1, pb.NotAllowedError, "Messages must be encrypted")
    await peer.publish(b"b", first=2, **KEYS)
    # As soon as it is not required any more, all are taken.
    await require(room)
    await peer.publish(b"c", first=3)


@pytest.mark.parametrize("topic", [TOPIC, DIRECT])
async def test_a_producer_that_does_not_encrypt_is_ended_when_it_has_to(room: Room, topic: str) -> None:
    peer, other = await room.connect(), await room.connect()
    await peer.producer(topic, producer_name="plain")
    await peer.publish(b"a")
    await other.producer(topic, producer_name="encrypting", encrypted=True)
    await require(room, encryption_required=True)
    await peer.expect(C.CLOSE_PRODUCER)
    assert await peer.refused_producer(topic, producer_name="plain") == pb.MetadataError
    await other.publish(b"b", **KEYS)


async def test_topics_of_the_servers_take_what_is_not_encrypted(room: Room) -> None:
    await require(room, encryption_required=True)
    await room.broker.policies.update(NAME, lambda own: {**own, "maxProducerPerTopic": 5})
    peer = await room.connect()
    await peer.producer(CHANGE_EVENTS)
    await peer.publish(b"")


async def test_the_broker_may_require_producers_that_encrypt_and_then_looks_at_no_message() -> None:
    async with in_broker(encrypted_producers=True) as room:
        peer = await room.connect()
        assert await peer.refused_producer() == pb.MetadataError
        assert await peer.refused_producer(DIRECT) == pb.MetadataError
        await peer.producer(encrypted=True)
        await peer.publish(b"plain")
        await peer.producer(CHANGE_EVENTS, 2)


# Sizes


@pytest.mark.parametrize("topic", [TOPIC, DIRECT])
async def test_a_message_above_the_size_of_its_topic_is_refused(room: Room, topic: str) -> None:
    peer = await room.connect()
    await peer.producer(topic)
    await peer.publish(b"x" * 2000)
    await room.broker.policies.update(TopicName.parse(topic), lambda own: {**own, "maxMessageSize": 1000})
    await until(lambda: _rules(room, topic) is not None)
    peer.send_message(b"x" * 1000, 1)  # with its metadata it is larger
    sequence_id, code, text = await send_error(peer)
    assert (sequence_id, code) == (1, pb.NotAllowedError)
    assert text.startswith("Exceed maximum message size")
    await peer.publish(b"x" * 900, first=2)
    chunk = {"uuid": "u", "chunk_id": 0, "num_chunks_from_msg": 2, "total_chunk_msg_size": 4000}
    body = pb.CommandSend(producer_id=1, sequence_id=3, num_messages=1, is_chunk=True)
    peer.send(C(type=C.SEND, send=body), _entry(b"x" * 2000, 3, chunk))
    await peer.expect(C.SEND_RECEIPT)
    # Another topic, and this one without the policy, have the size of the broker.
    await room.broker.policies.update(TopicName.parse(topic), lambda own: {**own, "maxMessageSize": 0})
    await until(lambda: _rules(room, topic) is None)
    await peer.publish(b"x" * 2000, first=4)


def _rules(room: Room, topic: str) -> Any:
    name = TopicName.parse(topic)
    found = room.broker.topics.find(name) or room.broker.direct.find(name)
    assert found is not None
    return found.sends


def _entry(payload: bytes, sequence_id: int, fields: dict[str, Any]) -> bytes:
    return entry(payload, sequence_id=sequence_id, **fields)


# Types of subscriptions


async def test_a_subscription_of_another_type_than_those_allowed_is_refused(room: Room) -> None:
    await require(room, subscription_types_enabled=["Shared", "Failover"])
    peer = await room.connect()
    peer.ask_subscribe(subType=SUB.Exclusive)
    code, text = await peer.error()
    assert (code, text) == (pb.NotAllowedError, f"Topic[{{{TOPIC}}}] doesn't support Exclusive sub type!")
    await peer.subscribe(subType=SUB.Shared)
    await peer.end_consumer()
    # Also one that exists, without a task of its own.
    await require(room, subscription_types_enabled=["Failover"])
    assert await peer.refused_consumer(subType=SUB.Shared) == pb.NotAllowedError
    await peer.subscribe(subType=SUB.Failover)
    await peer.expect(C.ACTIVE_CONSUMER_CHANGE)
    # What the topic says goes first, and nothing is everything.
    await room.broker.policies.update(NAME, lambda own: {**own, "subscriptionTypesEnabled": ["Key_Shared"]})
    await trio.testing.wait_all_tasks_blocked()
    assert await peer.refused_consumer(name="t", consumer_id=2, subType=SUB.Failover) == pb.NotAllowedError
    await peer.subscribe(name="t", consumer_id=2, subType=SUB.Key_Shared)
    await peer.subscribe(DIRECT, consumer_id=3)
    await peer.subscribe(CHANGE_EVENTS, consumer_id=4)


async def test_the_broker_has_its_own_types_of_subscriptions() -> None:
    async with in_broker(subscription_types=("Exclusive", "Key_Shared"), key_shared=False) as room:
        peer = await room.connect()
        assert await peer.refused_consumer(subType=SUB.Shared) == pb.NotAllowedError
        peer.ask_subscribe(subType=SUB.Key_Shared)
        assert await peer.error() == (pb.NotAllowedError, "Key_Shared subscription is disabled by broker.")
        await peer.subscribe()

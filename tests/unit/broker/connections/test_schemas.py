"""Schemas over the protocol: of producers, of consumers, GET_SCHEMA and GET_OR_CREATE_SCHEMA."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from broker.topics.schemas.schema import PROPERTIES_MAX, SCHEMA_BYTES_MAX
from quire.metadata.store import ANY_VERSION
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import C
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Peer, Room

Schema = pb.Schema
TEXT = Schema(name="s", schema_data=b"", type=Schema.String)
ANY = Schema(name="", schema_data=b"", type=Schema.AutoConsume)
FIRST = b'{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
SECOND = b'{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'
OTHER = b'{"type":"record","name":"R","fields":[{"name":"z","type":"string"}]}'


def avro(data: bytes) -> pb.Schema:
    return Schema(name="R", schema_data=data, type=Schema.Avro)


def version(number: int) -> bytes:
    return number.to_bytes(8, "big")


async def produce(peer: Peer, producer_id: int, **options: Any) -> bytes:
    peer.ask_producer(TOPIC, producer_id, **options)
    return (await peer.expect(C.PRODUCER_SUCCESS)).producer_success.schema_version


async def get(peer: Peer, topic: str = TOPIC, **options: Any) -> pb.CommandGetSchemaResponse:
    request = pb.CommandGetSchema(request_id=peer.next_id(), topic=topic, **options)
    peer.send(C(type=C.GET_SCHEMA, getSchema=request))
    answer = (await peer.expect(C.GET_SCHEMA_RESPONSE)).getSchemaResponse
    assert answer.request_id == request.request_id
    return answer


async def set_policies(room: Room, value: bytes) -> None:
    await room.broker.metadata.put("/admin/policies/public/default", value, ANY_VERSION)


async def test_a_schema_that_is_too_large_is_refused_without_a_look_at_it(peer: Peer) -> None:
    large = avro(b" " * (SCHEMA_BYTES_MAX + 1))
    many = avro(FIRST)
    for number in range(PROPERTIES_MAX + 1):
        many.properties.add(key=str(number), value="")
    for schema in (large, many):
        peer.ask_producer(TOPIC, 1, schema=schema)
        code, message = await peer.error()
        assert code == pb.IncompatibleSchema
        assert "at most" in message
        assert await peer.refused_consumer(schema=schema) == pb.IncompatibleSchema


@pytest.mark.parametrize("used_by", ["producer", "consumer", "entry"])
async def test_a_consumer_with_a_schema_is_refused_by_a_topic_that_is_in_use_without_one(
    peer: Peer, used_by: str
) -> None:
    if used_by == "consumer":
        await peer.subscribe(consumer_id=8, name="bytes")
    else:
        await peer.producer()
        if used_by == "entry":
            await peer.publish(b"x")
            peer.send(C(type=C.CLOSE_PRODUCER, close_producer=pb.CommandCloseProducer(producer_id=1, request_id=77)))
            await peer.expect(C.SUCCESS)
    peer.ask_subscribe(schema=avro(FIRST))
    code, message = await peer.error()
    assert code == pb.IncompatibleSchema
    assert "without a schema" in message
    await peer.subscribe(consumer_id=2, name="any", schema=ANY)


async def test_a_namespace_decides_whether_schemas_are_added_and_who_may_publish_without(room: Room) -> None:
    peer = await room.connect()
    await produce(peer, 1, schema=avro(FIRST))
    await set_policies(room, b'{"is_allow_auto_update_schema":false,"schema_validation_enforced":true}')
    held = await room.broker.policies.load(TopicName.parse(TOPIC))
    while held.of_namespace is None or "schema_validation_enforced" not in held.of_namespace:
        await peer.silent(0.1)
    assert await peer.refused_producer(TOPIC, 2, schema=avro(SECOND)) == pb.IncompatibleSchema
    peer.ask_producer(TOPIC, 2)
    code, message = await peer.error()
    assert code == pb.IncompatibleSchema
    assert "schemaValidationEnforced" in message
    assert await produce(peer, 2, schema=avro(FIRST)) == version(0)


async def test_the_schemas_of_a_topic_go_with_it(room: Room, peer: Peer) -> None:
    await produce(peer, 1, schema=avro(FIRST))
    await produce(peer, 2, schema=avro(SECOND))
    assert len(room.cluster.ledgers.listed()) >= 3
    await room.broker.administration.delete_topic(TopicName.parse(TOPIC), force=True)
    assert await room.broker.topics.schemas.newest(TopicName.parse(TOPIC)) is None
    assert not room.cluster.ledgers.listed()
    assert await room.broker.metadata.get("/schemas/public/default/orders") is None


async def test_partitions_share_the_schemas_of_their_topic_which_go_with_the_last_of_them(room: Room) -> None:
    peer = await room.connect()
    name = TopicName.parse("persistent://public/default/parted")
    administration = room.broker.administration
    await administration.create_partitioned_topic(name, 2)
    first, second = (name.with_partition(index).full for index in range(2))
    peer.ask_producer(first, 1, schema=avro(FIRST))
    assert (await peer.expect(C.PRODUCER_SUCCESS)).producer_success.schema_version == version(0)
    assert await peer.refused_producer(second, 2, schema=avro(OTHER)) == pb.IncompatibleSchema
    assert (await get(peer, name.full)).schema.schema_data == FIRST
    await administration.delete_topic(name.with_partition(0), force=True)
    await peer.expect(C.CLOSE_PRODUCER)
    assert (await get(peer, name.full)).schema.schema_data == FIRST
    await administration.delete_partitioned_topic(name, force=True)
    assert (await get(peer, name.full)).error_code == pb.TopicNotFound
    assert not room.cluster.ledgers.listed()


async def test_a_schema_that_is_on_its_way_while_its_topic_is_deleted_is_not_left_behind(room: Room) -> None:
    peer = await room.connect()
    await produce(peer, 1)
    await peer.publish(b"x")
    room.cluster.ledgers.hold = True
    peer.ask_producer(TOPIC, 2, schema=avro(FIRST))
    await until(lambda: len(room.cluster.ledgers.listed()) == 2)
    async with trio.open_nursery() as nursery:
        name = TopicName.parse(TOPIC)
        nursery.start_soon(partial(room.broker.administration.delete_topic, name, force=True))
        await peer.expect(C.CLOSE_PRODUCER)
        room.cluster.ledgers.release()
    assert (await peer.error())[0] == pb.ServiceNotReady
    assert (await get(peer)).error_code == pb.TopicNotFound
    assert not room.cluster.ledgers.listed()

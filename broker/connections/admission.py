"""Admission of producers to a topic: names and exclusive claims of dead holders, turns, and what was sent before."""

from __future__ import annotations

from typing import Protocol

import trio

from broker import replies
from broker.connections.connection import Connection
from broker.ends import End, Life
from broker.errors import ProducerBusyError, ProducerFencedError, ServiceNotReadyError
from broker.topics.exclusive import AnyTopic, epoch_of, give_up, in_the_way, make_claim, store_epoch
from broker.topics.producer import Producer
from broker.topics.producer_access import Claim, check_epoch
from quire.wire.pulsar import PulsarApi_pb2 as pb


class Creating(Protocol):
    """The creation of a producer, as its admission uses it."""

    def check(self) -> None:
        """Raise ServiceNotReadyError if the client has closed it meanwhile."""

    async def wait(self, turn: trio.Event) -> None:
        """Wait for its turn, or until the client closes it."""


async def admit_producer(
    connection: Connection, creation: Creating, topic: AnyTopic, request: pb.CommandProducer
) -> Producer:
    """Add a producer that shares the topic. Raises ProducerBusyError only if the holder of the name, or of the topic,
    is alive, which costs a PING and its answer."""
    name = request.producer_name or connection.context.next_producer_name()
    while True:
        creation.check()
        try:
            added = topic.add_producer(connection, request.producer_id, name, request.epoch)
        except ProducerBusyError:
            exclusive = topic.access is not None and topic.access.holder is not None
            other = in_the_way(topic, name) if exclusive else topic.producers.get(name)
            # None: the limit of producers is reached, or others wait for the topic.
            if other is None or not await _ended(other, connection):
                raise
        else:
            return await _settled(creation, topic, added)


async def admit_exclusive_producer(
    connection: Connection, creation: Creating, topic: AnyTopic, request: pb.CommandProducer
) -> Producer:
    """Add a producer that has the topic for itself, maybe after it has waited for its turn.

    Raises ProducerFencedError only if a producer that keeps it out is alive, or the topic epoch has moved on."""
    name = request.producer_name or connection.context.next_producer_name()
    turn = trio.Event()
    claim = Claim(name, request.topic_epoch if request.HasField("topic_epoch") else None, turn.set)
    mode = request.producer_access_mode
    try:
        while True:
            creation.check()
            check_epoch(claim.epoch, epoch_of(topic))
            try:
                granted = make_claim(topic, claim, mode, connection, request.producer_id, request.epoch)
                break
            except ProducerFencedError:
                other = in_the_way(topic, name)
                if other is None or not await _ended(other, connection):
                    raise
        if not granted:
            connection.write((producer_success(request, name, topic, ready=False),))
            await creation.wait(turn)
            creation.check()
            if claim.refused is not None:
                raise claim.refused
        await store_epoch(topic, claim)
        creation.check()
        added = topic.add_producer(connection, request.producer_id, name, request.epoch, claim)
    except BaseException:
        give_up(topic, claim)
        raise
    return await _settled(creation, topic, added)


async def _ended(other: Producer, connection: Connection) -> bool:
    """Return whether a producer that is in the way of one of this connection was dead, and is ended."""
    if other.connection is connection or await other.connection.alive():
        return False
    other.topic.end_producer(other, End.LOST)
    return True


async def _settled(creation: Creating, topic: AnyTopic, added: Producer) -> Producer:
    """Return the producer when what it sent on a connection before is durable, if duplicates are dropped."""
    if topic.deduplication is None:
        return added

    def check() -> None:
        creation.check()
        topic.check_open()
        if added.life is not Life.OPEN:
            raise ServiceNotReadyError(f"producer {added.name!r} was closed while it was being created")

    try:
        await topic.deduplication.settle(added.name, check)
        check()
        return added
    except BaseException:
        topic.end_producer(added, End.LOST)
        raise


def register(
    connection: Connection, request: pb.CommandProducer, added: Producer, topic: AnyTopic, schema_version: bytes = b""
) -> None:
    """Make a producer known to its connection, and answer."""
    connection.closed_producers.pop(request.producer_id, None)
    connection.producers[request.producer_id] = added
    added.encrypted = request.encrypted
    if request.metadata:
        added.properties = {pair.key: pair.value for pair in request.metadata}
    connection.write((producer_success(request, added.name, topic, schema_version=schema_version),))


def producer_success(
    request: pb.CommandProducer, name: str, topic: AnyTopic, *, ready: bool = True, schema_version: bytes = b""
) -> bytes:
    """Return the answer to PRODUCER. One that waits has no epoch yet. Source: Pulsar's ServerCnx."""
    deduplication = topic.deduplication
    return replies.producer_success(
        request.request_id,
        name,
        last_sequence_id=-1 if deduplication is None else deduplication.sequences.last(name),
        topic_epoch=epoch_of(topic) if ready else None,
        ready=ready,
        schema_version=schema_version,
    )

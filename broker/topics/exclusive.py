"""Claims of producers that want a topic for themselves, on the topic they claim: see `producer_access`."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from broker.background import see_through
from broker.ends import End
from broker.errors import ServiceNotReadyError
from broker.topics.non_persistent.topic import NonPersistentTopic
from broker.topics.ports import ProducerClient
from broker.topics.producer import Producer
from broker.topics.producer_access import EPOCH_PROPERTY, Access, Claim, topic_epoch, with_epoch_of
from broker.topics.topic import Topic
from managed_ledger.errors import ManagedLedgerError
from quire.wire.pulsar import PulsarApi_pb2 as pb

AnyTopic: TypeAlias = Topic | NonPersistentTopic


def make_claim(
    topic: AnyTopic,
    claim: Claim,
    mode: pb.ProducerAccessMode,
    connection: ProducerClient[Producer],
    producer_id: int,
    epoch: int,
) -> bool:
    """Claim the topic for one producer; return whether it is granted, or else waits.

    A granted claim goes through `store_epoch` and `Topic.add_producer`; `give_up` ends any other. `epoch`: of the
    client's connection, as in PRODUCER; that of the topic is checked by the caller. Raises ProducerFencedError,
    ProducerBusyError, TopicTerminatedError, NoRoomError, ServiceNotReadyError."""
    topic.check_takes_producers()
    access = topic.access = topic.access or Access()
    old = topic.producers.get(claim.name)
    if old is not None and old.is_replaced_by(connection, producer_id, epoch):
        if access.holder is not None and access.holder.producer is old:
            access.holder = claim  # before it is ended, so that no other has its turn between the two
            topic.end_producer(old, End.LOST)
            return True
        topic.end_producer(old, End.LOST)
    granted = access.claim(claim, mode, topic.producers)
    if mode == pb.ExclusiveWithFencing:
        for producer in list(topic.producers.values()):
            topic.end_producer(producer, End.FENCED)
    return granted


async def store_epoch(topic: AnyTopic, claim: Claim) -> None:
    """Make the topic epoch of a granted claim durable, as far as anything of the topic is.

    Raises ProducerFencedError, ServiceNotReadyError (it may be stored all the same)."""
    topic.check_open()
    if isinstance(topic, NonPersistentTopic):
        properties = {} if topic.epoch is None else {EPOCH_PROPERTY: str(topic.epoch)}
        topic.epoch = topic_epoch(with_epoch_of(claim, properties).items())
        return
    ledger = topic.ledger

    async def store() -> None:
        try:
            await ledger.update_properties(partial(with_epoch_of, claim))
        except ManagedLedgerError as error:
            raise ServiceNotReadyError(f"topic epoch of {topic.name.full} not stored: {error}") from error

    # Not in a task of the connection: if it breaks meanwhile, the outcome must still be known.
    await see_through(topic.nursery, store, name="store topic epoch")
    topic.check_open()
    if claim.refused is not None:
        raise claim.refused


def give_up(topic: AnyTopic, claim: Claim) -> None:
    """End a claim whose producer is not added."""
    if topic.access is not None:
        topic.access.withdraw(claim, topic.producers)


def epoch_of(topic: AnyTopic) -> int | None:
    """Return the topic epoch; None: there was never an exclusive producer."""
    return topic.epoch if isinstance(topic, NonPersistentTopic) else topic_epoch(topic.ledger.properties)


def in_the_way(topic: AnyTopic, name: str) -> Producer | None:
    """Return a connected producer for which one of that name is refused: it may be dead."""
    return topic.producers.get(name) or next(iter(topic.producers.values()), None)

"""Administration over a whole broker in memory: results exist, and are visible to clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.lowlevel

from broker.admin.administration import EARLIEST, LATEST, Administration
from broker.config import PARTITIONED
from broker.errors import (
    BeingDeletedError,
    BrokerError,
    InvalidTopicError,
    IsPartitionedError,
    MetadataUnavailableError,
    NotAllowedError,
    NotPartitionedError,
    PartitionCountError,
    ServiceNotReadyError,
    SubscriptionBusyError,
    SubscriptionExistsError,
    SubscriptionNotFoundError,
    TopicBusyError,
    TopicExistsError,
    TopicNotFoundError,
)
from managed_ledger.trimming import Retention
from quire.ledger.errors import LedgerError
from quire.ledger.position import Position
from quire.metadata.errors import MetadataError
from quire.metadata.store import Create
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import NamespaceName, TopicName
from tests.support.pulsar_frames import SUB, C
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Peer, Room, in_broker

NAME = TopicName.parse(TOPIC)
SPACE = NamespaceName("public", "default")


def part(index: int) -> str:
    return NAME.with_partition(index).full


async def publish(peer: Peer, topic: str, *payloads: bytes, producer_id: int = 1) -> list[pb.MessageIdData]:
    await peer.producer(topic, producer_id)
    ids = []
    for number, payload in enumerate(payloads):
        peer.send_message(payload, number, producer_id)
        ids.append((await peer.expect(C.SEND_RECEIPT)).send_receipt.message_id)
    await peer.end_producer(producer_id)
    return ids


async def read(
    peer: Peer, topic: str, count: int, name: str = "s", consumer_id: int = 9, **options: Any
) -> list[bytes]:
    """Return the messages that the subscription delivers; there must be exactly this many."""
    await peer.subscribe(topic, name, consumer_id, **options)
    peer.flow(1000, consumer_id)
    found = await peer.payloads(count)
    assert await peer.silent(0.5)
    await peer.end_consumer(consumer_id)
    return found


async def raises(kind: type[BrokerError], call: Any) -> None:
    with pytest.raises(kind) as caught:
        await call
    assert type(caught.value) is kind


# Partitioned topics


async def test_a_partitioned_topic_is_listed_counted_and_made_once(room: Room) -> None:
    admin = Administration(room.broker.topics, room.broker.direct, room.broker.metadata, room.nursery)
    assert await admin.partitions(NAME) == 0
    await admin.create_partitioned_topic(NAME, 3)
    assert await admin.partitions(NAME) == 3
    assert await admin.partitioned_topics_of_namespace(SPACE) == [TOPIC]
    assert await admin.topics_of_namespace(SPACE) == [part(0), part(1), part(2)]
    assert not room.broker.topics.loaded()
    await raises(TopicExistsError, admin.create_partitioned_topic(NAME, 3))
    await raises(TopicExistsError, admin.create_topic(NAME))
    await raises(TopicExistsError, admin.create_topic(NAME.with_partition(0)))
    await raises(NotAllowedError, admin.create_topic(NAME.with_partition(3)))
    await raises(InvalidTopicError, admin.create_partitioned_topic(NAME.with_partition(1), 3))
    await raises(PartitionCountError, admin.create_partitioned_topic(TopicName.parse("other"), 0))


async def test_a_plain_topic_is_not_made_partitioned_and_a_partitioned_one_is_not_used_as_plain(room: Room) -> None:
    admin, peer = room.broker.administration, await room.connect()
    await publish(peer, TOPIC, b"m0")
    await raises(TopicExistsError, admin.create_partitioned_topic(NAME, 2))
    await raises(TopicExistsError, admin.create_topic(NAME))
    await raises(NotPartitionedError, admin.grow_partitioned_topic(NAME, 2))
    await raises(NotPartitionedError, admin.delete_partitioned_topic(NAME))
    other = TopicName.parse("other")
    await admin.create_partitioned_topic(other, 2)
    for topic in (other.full, other.with_partition(2).full, f"{TOPIC}-partition-0"):
        assert await peer.refused_producer(topic) == pb.NotAllowedError
        assert await peer.refused_consumer(topic) == pb.NotAllowedError
    assert await admin.topics_of_namespace(SPACE) == [TOPIC, *(f"{other.full}-partition-{i}" for i in (0, 1))]


async def test_of_two_who_make_a_topic_of_both_kinds_at_once_one_wins(room: Room) -> None:
    admin = room.broker.administration
    for number in range(20):
        name = TopicName.parse(f"race-{number}")
        lost: list[str] = []

        async def plain(name: TopicName = name, lost: list[str] = lost) -> None:
            try:
                await room.broker.topics.get(name)
            except NotAllowedError:
                lost.append("plain")

        async def partitioned(name: TopicName = name, lost: list[str] = lost) -> None:
            try:
                await admin.create_partitioned_topic(name, 2)
            except TopicExistsError:
                lost.append("partitioned")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(plain)
            nursery.start_soon(partitioned)
        assert len(lost) == 1
        assert await room.broker.topics.exists(name) == (lost == ["partitioned"])


async def test_partitions_of_a_lost_topic_can_be_read_and_no_new_ones_come_to_be(room: Room) -> None:
    admin, peer = room.broker.administration, await room.connect()
    await admin.create_partitioned_topic(NAME, 2)
    await publish(peer, part(1), b"m0")
    await room.broker.topics.partitioned.delete(NAME)
    assert await read(peer, part(1), 1) == [b"m0"]
    assert await peer.refused_producer(part(2)) == pb.NotAllowedError


async def test_nothing_published_to_a_new_partition_escapes_a_subscription_of_the_topic(room: Room) -> None:
    admin, peer = room.broker.administration, await room.connect()
    await admin.create_partitioned_topic(NAME, 1)
    await publish(peer, part(0), b"old")
    await admin.create_subscription(NAME, "hold", LATEST)
    await admin.grow_partitioned_topic(NAME, 3)
    assert await admin.partitions(NAME) == 3
    assert await admin.subscriptions(NAME.with_partition(2)) == ["hold"]
    payloads = [b"m%d" % number for number in range(25)]  # more than one ledger holds
    await publish(peer, part(2), *payloads)
    topic = await room.topic(part(2))
    topic.ledger.retention = Retention()
    assert await topic.ledger.trim() == 0
    assert await read(peer, part(2), 25, "hold", initialPosition=SUB.Latest) == payloads
    await raises(PartitionCountError, admin.grow_partitioned_topic(NAME, 2))


async def test_a_subscription_made_while_the_topic_grows_is_on_the_new_partitions_too(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, peer = room.broker.administration, await room.connect()
    await admin.create_partitioned_topic(NAME, 1)
    partitioned = room.broker.topics.partitioned
    grow = partitioned.grow

    async def late(name: TopicName, partitions: int) -> int:
        before = await grow(name, partitions)
        await peer.subscribe(part(0), "late")
        await publish(peer, part(1), b"m0")
        return before

    monkeypatch.setattr(partitioned, "grow", late)
    await admin.grow_partitioned_topic(NAME, 2)
    assert await read(peer, part(1), 1, "late", initialPosition=SUB.Latest) == [b"m0"]


async def test_a_partitioned_topic_in_use_is_deleted_by_force_only_and_nothing_of_it_comes_back(room: Room) -> None:
    admin, peer = room.broker.administration, await room.connect()
    await admin.create_partitioned_topic(NAME, 3)
    await publish(peer, part(0), b"old")
    await peer.producer(part(1))
    await peer.subscribe(part(0))
    await raises(TopicBusyError, admin.delete_partitioned_topic(NAME))
    assert await admin.partitions(NAME) == 3
    assert await read(peer, part(0), 1, "other") == [b"old"]
    await admin.delete_partitioned_topic(NAME, force=True)
    assert {(await peer.receive())[0].type for _ in range(2)} == {C.CLOSE_CONSUMER, C.CLOSE_PRODUCER}
    assert await admin.partitions(NAME) == 0
    assert await admin.topics_of_namespace(SPACE) == []
    assert await admin.partitioned_topics_of_namespace(SPACE) == []
    await raises(NotPartitionedError, admin.delete_partitioned_topic(NAME, force=True))
    assert await peer.refused_producer(part(0)) == pb.NotAllowedError
    await admin.create_partitioned_topic(NAME, 1)
    await publish(peer, part(0), b"new")
    assert await read(peer, part(0), 1) == [b"new"]
    await admin.delete_partitioned_topic(NAME)


async def test_a_client_that_comes_while_partitions_go_does_not_make_one_again(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, peer = room.broker.administration, await room.connect()
    await admin.create_partitioned_topic(NAME, 2)
    await peer.producer(part(1))
    delete = room.factory.delete
    answers: list[pb.ServerError] = []

    async def watched(name: str, *, also: Sequence[int]) -> None:
        if name.endswith("1"):
            # Partition 0 is deleted in the meantime.
            await peer.expect(C.CLOSE_PRODUCER)
            await trio.testing.wait_all_tasks_blocked()
            peer.ask_producer(part(0))
            answers.append((await peer.error())[0])
        await delete(name, also=also)

    monkeypatch.setattr(room.factory, "delete", watched)
    await admin.delete_partitioned_topic(NAME, force=True)
    assert answers == [pb.MetadataError]  # an error that clients retry
    assert await admin.topics_of_namespace(SPACE) == []


@pytest.mark.parametrize("step", ["first log", "second log", "node"])
async def test_a_deletion_that_was_broken_off_leaves_nothing_that_can_be_used_and_can_be_repeated(
    step: str, room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, peer = room.broker.administration, await room.connect()
    await admin.create_partitioned_topic(NAME, 2)
    for index in (0, 1):
        await publish(peer, part(index), b"old")
    store, deleted = room.cluster.stores[0], 0
    multi = store.multi

    async def cut(*_: object) -> None:
        raise MetadataError("cut")

    async def cut_after(ops: Any) -> list[str]:
        nonlocal deleted
        if any(type(op).__name__ == "Delete" and "partition" in op.path.rpartition("/")[2] for op in ops):
            deleted += 1
            if deleted > (step == "second log"):
                raise MetadataError("cut")
        return await multi(ops)

    with monkeypatch.context() as patch:
        patch.setattr(store, "delete", cut)
        if step != "node":
            patch.setattr(store, "multi", cut_after)
        with pytest.raises((MetadataUnavailableError, ServiceNotReadyError)):
            await admin.delete_partitioned_topic(NAME)
    room.broker.topics.partitioned.on_half_deleted = lambda name: None
    for index in (0, 1):
        assert await peer.refused_producer(part(index)) == pb.MetadataError
    await raises(BeingDeletedError, admin.create_partitioned_topic(NAME, 2))
    await raises(BeingDeletedError, admin.grow_partitioned_topic(NAME, 3))
    await admin.delete_partitioned_topic(NAME)
    assert await admin.topics_of_namespace(SPACE) == []
    await admin.create_partitioned_topic(NAME, 2)
    await publish(peer, part(0), b"new")
    assert await read(peer, part(0), 1) == [b"new"]


async def test_who_wants_a_topic_whose_deletion_was_broken_off_gets_it_ended_and_the_topic_made_anew(
    room: Room,
) -> None:
    admin, peer = room.broker.administration, await room.connect()
    await admin.create_partitioned_topic(NAME, 2)
    await publish(peer, part(0), b"old")
    await room.broker.topics.partitioned.mark(NAME, deleted=True)
    for _ in range(3):
        await raises(BeingDeletedError, admin.partitions(NAME))
    with trio.fail_after(60):
        while True:
            try:
                assert await admin.partitions(NAME) == 0
                break
            except BeingDeletedError:
                await trio.sleep(0.01)
    assert await admin.topics_of_namespace(SPACE) == []
    await publish(peer, TOPIC, b"new")


# Topics


async def test_a_topic_in_use_is_deleted_by_force_only(room: Room) -> None:
    admin, peer = room.broker.administration, await room.connect()
    await peer.producer()
    await raises(TopicBusyError, admin.delete_topic(NAME))
    await peer.end_producer()
    await peer.subscribe()
    await raises(TopicBusyError, admin.delete_topic(NAME))
    await admin.delete_topic(NAME, force=True)
    await peer.expect(C.CLOSE_CONSUMER)
    assert not room.broker.topics.loaded()
    assert await admin.topics_of_namespace(SPACE) == []
    await raises(TopicNotFoundError, admin.delete_topic(NAME))
    await admin.create_topic(NAME)
    await admin.delete_topic(NAME)
    await raises(TopicNotFoundError, admin.delete_topic(NAME))


async def test_what_reconnects_after_a_deletion_finds_a_new_topic_and_none_of_the_old_data(room: Room) -> None:
    admin, peer = room.broker.administration, await room.connect()
    await publish(peer, TOPIC, *(b"old%d" % number for number in range(25)))
    await peer.subscribe(name="s")
    await peer.producer(producer_id=2)
    old = set(room.cluster.ledgers.stored)
    room.cluster.ledgers.delay_s = 1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(admin.delete_topic, NAME, True)
        assert {(await peer.receive())[0].type for _ in range(2)} == {C.CLOSE_CONSUMER, C.CLOSE_PRODUCER}
        peer.ask_producer(producer_id=2)  # while it is being deleted
        await peer.expect(C.PRODUCER_SUCCESS)
    assert not old & set(room.cluster.ledgers.stored)
    peer.send_message(b"new", 0, 2)
    await peer.expect(C.SEND_RECEIPT)
    assert await read(peer, TOPIC, 1) == [b"new"]
    assert await admin.subscriptions(NAME) == ["s"]


async def test_a_deletion_goes_on_when_whoever_asked_is_gone(room: Room) -> None:
    admin, peer = room.broker.administration, await room.connect()
    await publish(peer, TOPIC, b"m0")
    room.cluster.ledgers.delay_s = 1
    with trio.move_on_after(0.1):
        await admin.delete_topic(NAME)

    async def is_gone() -> bool:
        return not await room.broker.topics.exists(NAME)

    await until(is_gone)


async def test_a_topic_is_deleted_after_it_was_loaded_or_closed_by_somebody_else(room: Room) -> None:
    admin, peer = room.broker.administration, await room.connect()
    await publish(peer, TOPIC, b"m0")
    room.broker.topics.close_soon(await room.topic())
    await admin.delete_topic(NAME)
    assert not await room.broker.topics.exists(NAME)
    room.cluster.ledgers.delay_s = 1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(room.broker.topics.get, NAME)
        await trio.sleep(0.5)
        await admin.delete_topic(NAME, force=True)
    assert not await room.broker.topics.exists(NAME)
    assert not room.broker.topics.loaded()


async def test_a_deletion_that_fails_half_way_lets_the_topic_be_used_and_deleted_again(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, peer = room.broker.administration, await room.connect()
    await publish(peer, TOPIC, b"old")

    async def fails(ledger_id: int) -> None:
        raise LedgerError("away")

    ledgers = room.cluster.ledgers
    with monkeypatch.context() as patch:
        patch.setattr(ledgers, "delete", fails)
        await raises(ServiceNotReadyError, admin.delete_topic(NAME))
    await publish(peer, TOPIC, b"new")
    assert await read(peer, TOPIC, 1) == [b"new"]
    await admin.delete_topic(NAME)
    assert not await room.broker.topics.exists(NAME)
    assert not ledgers.stored


async def test_one_partition_can_be_deleted_and_made_again_but_not_the_whole_as_if_it_were_one(room: Room) -> None:
    admin, peer = room.broker.administration, await room.connect()
    await admin.create_partitioned_topic(NAME, 2)
    await raises(IsPartitionedError, admin.delete_topic(NAME))
    await admin.delete_topic(NAME.with_partition(1))
    assert await admin.topics_of_namespace(SPACE) == [part(0)]
    await admin.create_topic(NAME.with_partition(1))
    await admin.delete_topic(NAME.with_partition(1))
    await publish(peer, part(1), b"m0")
    assert await admin.topics_of_namespace(SPACE) == [part(0), part(1)]


async def test_everything_in_a_namespace_that_is_not_there_is_not_found(room: Room) -> None:
    admin = room.broker.administration
    nowhere, space = TopicName.parse("persistent://public/nowhere/t"), NamespaceName("public", "nowhere")
    for call in (
        admin.create_partitioned_topic(nowhere, 1),
        admin.grow_partitioned_topic(nowhere, 1),
        admin.partitions(nowhere),
        admin.delete_partitioned_topic(nowhere),
        admin.topics_of_namespace(space),
        admin.partitioned_topics_of_namespace(space),
        admin.create_topic(nowhere),
        admin.delete_topic(nowhere),
        admin.create_subscription(nowhere, "s", LATEST),
        admin.delete_subscription(nowhere, "s"),
        admin.subscriptions(nowhere),
        admin.internal_stats(nowhere),
        admin.message_id_at(nowhere, 1),
    ):
        await raises(TopicNotFoundError, call)
    for call in (
        admin.delete_subscription(NAME, "s"),
        admin.subscriptions(NAME),
        admin.internal_stats(NAME),
        admin.message_id_at(NAME, 1),
    ):
        await raises(TopicNotFoundError, call)
    assert await admin.topics_of_namespace(SPACE) == []


async def test_nodes_that_are_no_topics_are_not_listed(room: Room) -> None:
    admin = room.broker.administration
    await admin.create_topic(TopicName.parse("b é"))
    await admin.create_topic(TopicName.parse("a"))
    folder = "/managed-ledgers/public/default/persistent"
    await room.cluster.stores[0].multi([Create(path=f"{folder}/%FF"), Create(path=f"{folder}/a%2e")])
    assert await admin.topics_of_namespace(SPACE) == [f"persistent://public/default/{each}" for each in ("a", "b é")]


# Subscriptions


async def test_the_position_given_is_the_next_that_is_delivered(room: Room) -> None:
    admin, peer = room.broker.administration, await room.connect()
    payloads = [b"m%d" % number for number in range(25)]
    ids = await publish(peer, TOPIC, *payloads)  # ledgers of ten entries
    places = [Position(each.ledgerId, each.entryId) for each in ids]
    first, second, third = sorted({place.ledger_id for place in places})
    cases = [(place, number) for number, place in enumerate(places)]
    cases += [
        (EARLIEST, 0),
        (Position(first, -1), 0),
        (Position(first - 1, 7), 0),
        (Position(first, 10), 10),
        (Position(first, 99), 10),
        (Position(second, -1), 10),
        (Position(third, 5), 25),
        (Position(third, 500), 25),
        (Position(third + 100, 0), 25),
        (LATEST, 25),
    ]
    for number, (position, following) in enumerate(cases):
        await admin.create_subscription(NAME, f"s{number}", position)
        assert await read(peer, TOPIC, 25 - following, f"s{number}", number + 1) == payloads[following:], position


async def test_of_a_topic_without_entries_every_position_is_the_next_to_come(room: Room) -> None:
    admin, peer = room.broker.administration, await room.connect()
    positions = (EARLIEST, LATEST, Position(0, 0), Position(5, 5))
    for number, position in enumerate(positions):
        await admin.create_subscription(NAME, f"s{number}", position)
    await publish(peer, TOPIC, b"m0")
    for number in range(len(positions)):
        assert await read(peer, TOPIC, 1, f"s{number}") == [b"m0"]


async def test_a_subscription_before_what_was_trimmed_begins_with_what_is_left(room: Room) -> None:
    admin, peer = room.broker.administration, await room.connect()
    payloads = [b"m%d" % number for number in range(25)]
    ids = await publish(peer, TOPIC, *payloads)
    topic = await room.topic()
    topic.ledger.retention = Retention()
    await until(lambda: topic.ledger.state.name == "OPEN")
    assert await topic.ledger.trim() == 2
    await admin.create_subscription(NAME, "s", Position(ids[3].ledgerId, ids[3].entryId))
    assert await read(peer, TOPIC, 5) == payloads[20:]


async def test_a_subscription_is_durable_when_it_was_answered_and_holds_what_comes(room: Room) -> None:
    admin, peer = room.broker.administration, await room.connect()
    await admin.create_subscription(NAME, "s/1", LATEST)
    path = "/managed-ledgers/public/default/persistent/orders/s%2F1"
    assert await room.cluster.stores[0].get(path) is not None
    assert not (await room.topic()).subscriptions["s/1"].cursor.active  # without readers nothing is kept in the cache
    await publish(peer, TOPIC, *(b"m%d" % number for number in range(25)))
    topic = await room.topic()
    topic.ledger.retention = Retention()
    assert await topic.ledger.trim() == 0
    room.broker.topics.close_soon(topic)
    assert await admin.subscriptions(NAME) == ["s/1"]
    assert len(await read(peer, TOPIC, 25, "s/1", initialPosition=SUB.Latest)) == 25
    await raises(SubscriptionExistsError, admin.create_subscription(NAME, "s/1", EARLIEST))
    await raises(NotAllowedError, admin.create_subscription(NAME, " ", EARLIEST))


async def test_of_a_creation_and_a_subscribe_at_once_one_makes_the_subscription(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, peer = room.broker.administration, await room.connect()
    await publish(peer, TOPIC, b"m0")
    topic = await room.topic()
    store = room.cluster.stores[0]
    create = store.create

    async def slow(*args: Any, **options: Any) -> str:
        await trio.sleep(1)
        return await create(*args, **options)

    monkeypatch.setattr(store, "create", slow)
    peer.ask_subscribe(initialPosition=SUB.Latest)
    await trio.sleep(0.1)
    await raises(SubscriptionExistsError, admin.create_subscription(NAME, "s", EARLIEST))
    await peer.expect(C.SUCCESS)
    await peer.end_consumer()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(topic.create_subscription, "t", EARLIEST)
        await trio.sleep(0.1)
        assert await read(peer, TOPIC, 1, "t", initialPosition=SUB.Latest) == [b"m0"]


async def test_a_subscription_of_a_partitioned_topic_is_one_on_every_partition(room: Room) -> None:
    admin, peer = room.broker.administration, await room.connect()
    await admin.create_partitioned_topic(NAME, 3)
    await admin.create_subscription(NAME.with_partition(1), "s", LATEST)
    await admin.create_subscription(NAME, "s", EARLIEST)  # the other ones
    await raises(SubscriptionExistsError, admin.create_subscription(NAME, "s", EARLIEST))
    for index in range(3):
        assert await admin.subscriptions(NAME.with_partition(index)) == ["s"]
    await peer.subscribe(part(2), "s")
    await raises(SubscriptionBusyError, admin.delete_subscription(NAME, "s"))
    assert await admin.subscriptions(NAME.with_partition(0)) == ["s"]
    await admin.delete_subscription(NAME, "s", force=True)
    await peer.expect(C.CLOSE_CONSUMER)
    assert await admin.subscriptions(NAME) == []
    await raises(SubscriptionNotFoundError, admin.delete_subscription(NAME, "s"))
    await admin.create_subscription(NAME.with_partition(1), "t", LATEST)
    assert await admin.subscriptions(NAME) == ["t"]
    await admin.delete_subscription(NAME, "t")
    assert await admin.subscriptions(NAME) == []


async def test_a_subscription_that_was_deleted_holds_nothing_and_begins_anew(room: Room) -> None:
    admin, peer = room.broker.administration, await room.connect()
    await admin.create_subscription(NAME, "s", EARLIEST)
    await publish(peer, TOPIC, b"m0")
    await raises(SubscriptionNotFoundError, admin.delete_subscription(NAME, "t"))
    await admin.delete_subscription(NAME, "s")
    assert await room.cluster.stores[0].children("/managed-ledgers/public/default/persistent/orders") == []
    assert await read(peer, TOPIC, 0, initialPosition=SUB.Latest) == []


async def test_a_readers_subscription_is_listed_while_it_is_there_and_can_be_ended(room: Room) -> None:
    admin, peer = room.broker.administration, await room.connect()
    await peer.subscribe(name="reader", durable=False)
    assert await admin.subscriptions(NAME) == ["reader"]
    await raises(SubscriptionExistsError, admin.create_subscription(NAME, "reader", LATEST))
    await admin.delete_subscription(NAME, "reader", force=True)
    await peer.expect(C.CLOSE_CONSUMER)
    assert await admin.subscriptions(NAME) == []


async def test_a_topic_is_made_for_its_subscription_as_the_configuration_says() -> None:
    async def plain(room: Room) -> None:
        await room.broker.administration.create_subscription(NAME, "s", LATEST)
        assert await room.broker.administration.topics_of_namespace(SPACE) == [TOPIC]

    async def partitioned(room: Room) -> None:
        await room.broker.administration.create_subscription(NAME, "s", LATEST)
        assert await room.broker.administration.topics_of_namespace(SPACE) == [part(0), part(1)]
        assert await room.broker.administration.subscriptions(NAME) == ["s"]

    async def neither(room: Room) -> None:
        await raises(TopicNotFoundError, room.broker.administration.create_subscription(NAME, "s", LATEST))

    async with in_broker() as room:
        await plain(room)
    async with in_broker(auto_topic_type=PARTITIONED, partitions_default=2) as room:
        await partitioned(room)
    async with in_broker(allow_auto_topic_creation=False) as room:
        await neither(room)


# Internal state


async def test_the_entry_of_a_time_is_the_first_published_then_or_later_and_else_the_next_to_come(room: Room) -> None:
    admin, peer = room.broker.administration, await room.connect()
    await admin.create_topic(NAME)
    start = await admin.message_id_at(NAME, 5)
    await peer.producer()
    ids = []
    for number in range(25):
        peer.send_message(b"m", number, publish_time=1000 + 10 * number)
        ids.append((await peer.expect(C.SEND_RECEIPT)).send_receipt.message_id)
    assert start == (ids[0].ledgerId, 0)
    for time_ms, number in ((0, 0), (1000, 0), (1001, 1), (1095, 10), (1240, 24)):
        assert await admin.message_id_at(NAME, time_ms) == (ids[number].ledgerId, ids[number].entryId)
    assert await admin.message_id_at(NAME, 1241) == (ids[24].ledgerId, ids[24].entryId + 1)
    await admin.create_partitioned_topic(TopicName.parse("other"), 2)
    await raises(IsPartitionedError, admin.message_id_at(TopicName.parse("other"), 5))

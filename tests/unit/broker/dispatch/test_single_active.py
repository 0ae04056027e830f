"""Exclusive and Failover: the active consumer, notifications of the others, redelivery."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from broker.dispatch.consumer import Consumer
from broker.dispatch.policies.failover import FailoverChoice
from broker.dispatch.policies.hash_owners import range_hash
from broker.dispatch.subscription import Subscription
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.unit.broker.fakes import Stage, commands, delivered, on_stage
from tests.unit.broker.peers import Peer

FAILOVER = pb.CommandSubscribe.Failover
EXCLUSIVE = pb.CommandSubscribe.Exclusive


def told(consumer: Consumer[Subscription]) -> list[bool]:
    """Return whether the consumer became active, for each notification."""
    return [
        command.active_consumer_change.is_active
        for command, _ in commands(consumer)
        if command.type == pb.BaseCommand.ACTIVE_CONSUMER_CHANGE
    ]


async def test_failover_tells_everybody_on_a_change_and_a_newcomer_where_it_stands() -> None:
    async with on_stage(FAILOVER) as stage:
        first = stage.join("a", priority=0)
        assert told(first) == [True]
        second = stage.join("b", priority=1)
        assert (told(first), told(second)) == ([], [False])
        stage.subscription.remove_consumer(first)
        assert (told(first), told(second)) == ([], [True])


async def test_failover_delivers_what_is_not_acknowledged_again_a_moment_later_and_to_one_only() -> None:
    async with on_stage(FAILOVER) as stage:
        first, second = stage.join("a", priority=0), stage.join("b", priority=1)
        for consumer in (first, second):
            stage.subscription.flow(consumer, 100)
        positions = stage.publish(*[b"%d" % number for number in range(5)])
        assert len(delivered(first)) == 5
        assert delivered(second) == []
        stage.subscription.remove_consumer(first)
        assert delivered(second) == []
        stage.subscription.ack_individual(second, positions[1:2], [])  # of the previous consumer, still in transit
        await trio.sleep(1.5)
        assert delivered(second) == [b"0", b"2", b"3", b"4"]


async def test_a_stopped_failover_subscription_starts_no_one() -> None:
    async with on_stage(FAILOVER) as stage:
        first, second = stage.join("a", priority=0), stage.join("b", priority=1)
        stage.publish(b"0")
        stage.subscription.flow(second, 10)
        stage.subscription.remove_consumer(first)
        stage.subscription.stop()
        await trio.testing.wait_all_tasks_blocked()
        assert (
            not stage.subscription.topic.nursery.child_tasks
        )  # no task waits to rewind a cursor that then has another consumer
        await trio.sleep(5)
        assert delivered(second) == []


async def test_redeliver_on_an_exclusive_subscription_brings_everything_unacknowledged_in_order() -> None:
    async with on_stage(EXCLUSIVE) as stage:
        consumer = stage.join(permits=100)
        positions = stage.publish(*[b"%d" % number for number in range(5)])
        assert len(delivered(consumer)) == 5
        stage.subscription.ack_individual(consumer, positions[2:3], [])
        stage.subscription.redeliver(consumer, positions[4:])
        stage.subscription.pump()
        assert delivered(consumer) == [b"0", b"1", b"3", b"4"]


async def test_permits_are_counted_in_messages_and_go_below_zero_by_less_than_a_batch() -> None:
    async with on_stage(EXCLUSIVE) as stage:
        consumer = stage.join()
        stage.publish(*[b"batch"] * 4, num_messages_in_batch=10)
        stage.subscription.flow(consumer, 15)
        assert len(delivered(consumer)) == 2
        assert stage.subscription.permits_of(consumer) == -5
        stage.subscription.flow(consumer, 5)
        assert delivered(consumer) == []
        stage.subscription.flow(consumer, 1)
        assert len(delivered(consumer)) == 1


async def test_greedy_permits_are_capped() -> None:
    async def test(stage: Stage) -> None:
        consumer = stage.join()
        for _ in range(3):
            stage.subscription.flow(consumer, (1 << 32) - 1)
        assert stage.subscription.permits_of(consumer) == 1000

    for kind in (EXCLUSIVE, FAILOVER, pb.CommandSubscribe.Shared, pb.CommandSubscribe.Key_Shared):
        async with on_stage(kind, permits_max=1000) as stage:
            await test(stage)


async def test_nothing_is_kept_in_the_cache_for_a_subscription_without_consumers() -> None:
    async with on_stage(EXCLUSIVE) as stage:
        consumer = stage.join(permits=10)
        assert stage.subscription.cursor.active
        stage.subscription.remove_consumer(consumer)
        assert not stage.subscription.cursor.active
        assert not stage.subscription.hungry
        assert stage.dropped == [stage.subscription]


async def test_the_active_consumer_of_a_partition_is_at_its_number_or_on_the_ring_as_the_configuration_says() -> None:
    names = ["a", "b", "c"]
    active: dict[bool, list[str]] = {}
    for hashing in (False, True):
        for partition in range(6):
            topic = f"persistent://public/default/orders-partition-{partition}"
            async with on_stage(FAILOVER, topic=topic, failover_consistent_hashing=hashing) as stage:
                for name in names:
                    stage.join(name)
                active.setdefault(hashing, []).append(stage.subscription.active.name)
    assert active[False] == [*names, *names]
    chosen = [
        FailoverChoice(f"persistent://public/default/orders-partition-{partition}").choose(
            [(0, name, name) for name in names]
        )
        for partition in range(6)
    ]
    assert active[True] == chosen != active[False]


@pytest.mark.parametrize("durable", [True, False])
async def test_a_reader_of_key_hash_ranges_gets_the_keys_in_them_and_no_others(durable: bool, peer: Peer) -> None:
    """keySharedMeta with hash ranges on an Exclusive subscription (Java: Reader.keyHashRange)."""
    await peer.producer()
    keys = [f"k{number % 20}" for number in range(200)]
    for number, key in enumerate(keys):
        await peer.publish(b"%d" % number, first=number, partition_key=key)
    got: list[int] = []
    for consumer_id, (start, end) in enumerate([(0, 20_000), (20_001, 65_535)]):
        meta = pb.KeySharedMeta(keySharedMode=pb.STICKY, hashRanges=[pb.IntRange(start=start, end=end)])
        await peer.subscribe(name=f"r{consumer_id}", consumer_id=consumer_id, durable=durable, keySharedMeta=meta)
        mine = [number for number, key in enumerate(keys) if start <= range_hash(key.encode()) <= end]
        assert mine
        peer.flow(7, consumer_id)
        part = [int(payload) for payload in await peer.payloads(7)]
        assert await peer.silent(), "what is passed over costs no permits, and no more than seven come"
        peer.flow(1000, consumer_id)
        assert part + [int(payload) for payload in await peer.payloads(len(mine) - 7)] == mine
        assert await peer.silent()
        got += mine
    assert sorted(got) == list(range(200))
    bad = pb.KeySharedMeta(keySharedMode=pb.STICKY, hashRanges=[pb.IntRange(start=9, end=5)])
    peer.ask_subscribe(name="bad", consumer_id=9, durable=durable, keySharedMeta=bad)
    assert (await peer.error())[0] == pb.ConsumerAssignError

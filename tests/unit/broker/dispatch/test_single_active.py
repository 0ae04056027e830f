"""Exclusive and Failover: the active consumer, notifications of the others, redelivery."""

from __future__ import annotations

import pytest

from broker.dispatch.policies.failover import FailoverChoice
from broker.dispatch.policies.hash_owners import range_hash
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.unit.broker.fakes import on_stage
from tests.unit.broker.peers import Peer

FAILOVER = pb.CommandSubscribe.Failover
EXCLUSIVE = pb.CommandSubscribe.Exclusive


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

"""Rates, bytes and times of what clients do, as the admin REST and CONSUMER_STATS show them."""

from __future__ import annotations

import pytest
import trio

from broker.admin.stats.topic_stats import Asked, take
from broker.measures import NOTHING
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import SUB, C
from tests.unit.broker.peers import Room

INTERVAL_S = 60


async def test_rates_are_those_of_the_time_between_the_last_two_rounds(room: Room) -> None:
    peer = await room.connect()
    begun_ms = room.broker.context.world.clock.wall_ms()
    await peer.producer()
    await peer.publish(*(b"m%d" % number for number in range(30)))
    await peer.subscribe(subType=SUB.Shared, permits=20)
    first = [(await peer.message())[0].message_id for _ in range(20)]
    await peer.answered_ack(*first[:6])
    topic = await room.topic()
    assert (await take(topic, Asked()))["msgRateIn"] == 0, "before the first round"

    await trio.sleep(INTERVAL_S)
    found = await take(topic, Asked())
    [publisher], subscription = found["publishers"], found["subscriptions"]["s"]
    [consumer] = subscription["consumers"]
    size = found["bytesInCounter"] / 30
    assert found["averageMsgSize"] == publisher["averageMsgSize"] == pytest.approx(size)
    for each in (found, publisher):
        assert (each["msgRateIn"], each["msgThroughputIn"]) == pytest.approx((0.5, size / 2), rel=0.05)
    for each in (found, subscription, consumer):
        assert (each["msgRateOut"], each["msgThroughputOut"]) == pytest.approx((1 / 3, size / 3), rel=0.05)
        assert each["bytesOutCounter"] == pytest.approx(20 * size, rel=0.05)
    assert subscription["messageAckRate"] == consumer["messageAckRate"] == pytest.approx(0.1, rel=0.05)
    times = ("lastConsumedFlowTimestamp", "lastConsumedTimestamp", "lastAckedTimestamp")
    used = [each[name] for each in (subscription, consumer) for name in times]
    assert all(begun_ms <= each < begun_ms + INTERVAL_S * 1000 for each in (*used, found["lastPublishTimeStamp"]))

    await trio.sleep(INTERVAL_S)
    later = await take(topic, Asked())
    assert (later["msgRateIn"], later["subscriptions"]["s"]["msgRateOut"]) == (0, 0), "nothing was done since"
    assert later["bytesInCounter"] == found["bytesInCounter"]


async def test_deliveries_made_again_and_bytes_of_consumers_that_left_are_counted(room: Room) -> None:
    peer = await room.connect()
    await peer.producer()
    await peer.publish(b"a", b"b")
    await peer.subscribe(subType=SUB.Shared, permits=10)
    await peer.payloads(2)
    body = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1)
    peer.send(C(type=C.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=body))
    await peer.payloads(2)
    await peer.end_consumer()
    await peer.subscribe(subType=SUB.Shared, permits=10, consumer_id=2)
    await peer.payloads(2)
    await trio.sleep(INTERVAL_S)
    subscription = (await take(await room.topic(), Asked()))["subscriptions"]["s"]
    [consumer] = subscription["consumers"]
    assert subscription["msgRateRedeliver"] == pytest.approx(4 / 60, rel=0.05)
    assert consumer["msgRateRedeliver"] == pytest.approx(2 / 60, rel=0.05)
    assert subscription["bytesOutCounter"] == 3 * consumer["bytesOutCounter"]


async def test_consumer_stats_have_the_rates(room: Room) -> None:
    peer = await room.connect()
    await peer.producer()
    await peer.publish(*[b"m"] * 6)
    await peer.subscribe(subType=SUB.Shared, permits=6)
    await peer.payloads(6)
    await trio.sleep(INTERVAL_S)
    peer.send(C(type=C.CONSUMER_STATS, consumerStats=pb.CommandConsumerStats(request_id=9, consumer_id=1)))
    found = (await peer.expect(C.CONSUMER_STATS_RESPONSE)).consumerStatsResponse
    assert found.msgRateOut == pytest.approx(0.1, rel=0.05)
    assert found.msgThroughputOut > found.msgRateOut


async def test_nothing_is_kept_of_clients_that_have_left(room: Room) -> None:
    """The producers of thousands of topics would stay in memory until the next round."""
    peer = await room.connect()
    await peer.producer()
    await peer.publish(b"m")
    await peer.subscribe(subType=SUB.Shared, permits=1)
    await peer.payloads(1)
    [producer] = (await room.topic()).producers.values()
    [consumer] = (await room.topic()).subscriptions["s"].consumers
    await trio.sleep(INTERVAL_S)
    measures = room.broker.context.measures
    assert measures.of(producer).messages_in > 0
    assert measures.of(consumer).messages_out > 0
    await peer.end_producer()
    await peer.end_consumer()
    assert measures.of(producer) == measures.of(consumer) == NOTHING
    assert not {producer, consumer} & {*measures._counts, *measures._rates}

"""No message of a non-persistent topic holds the event loop. Steps are counted in calls of functions."""

from __future__ import annotations

import pytest
import trio

from quire.wire.pulsar.names import TopicName
from tests.support.effort import effort
from tests.support.pulsar_frames import SUB, C
from tests.unit.broker.counted_steps import CALLS_MAX, Steps
from tests.unit.broker.peers import Room

TOPIC = "non-persistent://public/default/wide"


@pytest.mark.parametrize("kind", [SUB.Exclusive, SUB.Shared, SUB.Key_Shared])
async def test_many_messages_go_to_a_thousand_subscriptions_in_short_steps(room: Room, kind: SUB.SubType) -> None:
    count = effort(quick=50, full=1000)
    peer, producer = await room.connect(), await room.connect()
    for number in range(1000):
        await peer.subscribe(TOPIC, f"s{number}", number, subType=kind)
        peer.flow(1 << 20, number)
    topic = room.broker.direct.find(TopicName.parse(TOPIC))
    assert topic is not None
    await producer.producer(TOPIC)
    steps = Steps(trio.lowlevel.current_task(), real=False)
    peer.stream.window = 0  # what is dropped costs as much to choose
    trio.lowlevel.add_instrument(steps)
    try:
        for number in range(count):
            producer.send_message(b"m", number, partition_key=f"k{number % 100}")
        for _ in range(count):
            await producer.expect(C.SEND_RECEIPT)
    finally:
        trio.lowlevel.remove_instrument(steps)
    assert topic.messages_in == count
    assert steps.longest <= CALLS_MAX, (steps.longest, steps.where)

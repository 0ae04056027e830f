"""Fuzzed frames before and after CONNECTED, at a broker in memory. tests/cluster/test_fuzzed_frames.py has ports."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
import trio.testing

from tests.support.fuzzing.pulsar_frames import conversation
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Peer, Room


async def served(peer: Peer, number: int) -> None:
    """Publish one message, receive and acknowledge it."""
    await peer.publish(b"%d" % number, first=number)
    found, payload = await peer.message()
    assert payload == b"%d" % number
    peer.ack(found.message_id)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.broker(topics_per_namespace_max=50)
async def test_fuzzed_frames_are_handled_and_a_good_client_beside_them_is_served(
    room: Room, log_events: list[dict[str, Any]], seed: int
) -> None:
    """No frame is an ERROR in the log, and none is taken for our own mistake."""
    rng = random.Random(seed)
    beside = await room.connect()
    await beside.subscribe(TOPIC, permits=10_000)
    await beside.producer()
    number = 0
    while room.broker.context.frames < 3000:
        peer = room.open()
        begin, frames = conversation(rng, 30)
        peer.stream.arrive(b"".join(begin))
        await trio.testing.wait_all_tasks_blocked()
        peer.stream.arrive(b"".join(frames))
        await served(beside, number)
        number += 1
        if rng.random() < 0.7:
            await trio.testing.wait_all_tasks_blocked()
        peer.stream.close()
    await until(lambda: len(room.broker.connections) == 1)
    assert number > 50
    assert not [each for each in log_events if "internal" in each["event"] or each["event"] == "request failed"]


async def test_each_frame_counts_once(room: Room) -> None:
    peer = await room.connect()
    await peer.producer()
    await peer.publish(b"a", b"b", b"c")
    before = room.broker.context.frames
    assert before == 5  # CONNECT, PRODUCER, three SENDs
    peer.stream.arrive(b"\0\0\0\x01x")
    await peer.closed()
    assert room.broker.context.frames == before + 1

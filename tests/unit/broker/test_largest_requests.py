"""No request holds the event loop or causes an internal error, whatever its arguments: CONNECT, PRODUCER, SUBSCRIBE,
LOOKUP, PARTITIONED_METADATA, GET_TOPICS_OF_NAMESPACE, WATCH_TOPIC_LIST, SEND. (Commands with message ids:
test_largest_arguments.py.)

Steps are measured in calls of functions, as in that file.
"""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest
import trio

from broker.connections import creation
from broker.connections.handshake import CLIENT_VERSION_MAX
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.commands import REPEATED_MAX
from tests.support.pulsar_frames import SUB, C, entry
from tests.unit.broker.counted_steps import CALLS_MAX, Steps
from tests.unit.broker.peers import TOPIC, Peer, Room

LONG = "t" * 400_000
WIDE = "\u20ac" * 130_000
LAST = (1 << 64) - 1
PAIRS = [pb.KeyValue(key="", value="")] * REPEATED_MAX
NAMES = (LONG, WIDE, f"{TOPIC}-partition--1", f"{TOPIC}-partition-{10**30}", "//", "a/b/c/d/e/f", "\x00", "")


def lookups(peer: Peer) -> None:
    for name in NAMES:
        for request_id in (0, 1 << 63, LAST):
            body = pb.CommandLookupTopic(topic=name, request_id=request_id, advertised_listener_name=name[:1000])
            peer.send(C(type=C.LOOKUP, lookupTopic=body))
            partitions = pb.CommandPartitionedTopicMetadata(topic=name, request_id=request_id)
            peer.send(C(type=C.PARTITIONED_METADATA, partitionMetadata=partitions))


def lists(peer: Peer) -> None:
    for name in (*NAMES, "public/default"):
        for pattern in (LONG, WIDE, ".*a" * 16, "(" * 50, "[a-", "\\"):
            body = pb.CommandGetTopicsOfNamespace(namespace=name, request_id=LAST, topics_pattern=pattern)
            peer.send(C(type=C.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=body))
            watch = pb.CommandWatchTopicList(namespace=name, topics_pattern=pattern, request_id=LAST, watcher_id=LAST)
            peer.send(C(type=C.WATCH_TOPIC_LIST, watchTopicList=watch))
        closing = pb.CommandWatchTopicListClose(request_id=LAST, watcher_id=LAST)
        peer.send(C(type=C.WATCH_TOPIC_LIST_CLOSE, watchTopicListClose=closing))


def producers(peer: Peer) -> None:
    for number in ((1 << 63) - 1, 1 << 63, LAST):
        body = pb.CommandProducer(topic=TOPIC, producer_id=number, request_id=number, epoch=LAST)
        body.metadata.extend(PAIRS)
        peer.send(C(type=C.PRODUCER, producer=body))
        peer.send_entry(entry(b"x", sequence_id=LAST), LAST, number)
        named = pb.CommandProducer(topic=TOPIC, producer_id=1, request_id=number, producer_name=WIDE)
        peer.send(C(type=C.PRODUCER, producer=named))


def subscriptions(peer: Peer) -> None:
    for number in ((1 << 63) - 1, 1 << 63, LAST):
        start = pb.MessageIdData(ledgerId=number, entryId=number, partition=-(1 << 31), batch_index=-(1 << 31))
        for kind in (SUB.Exclusive, SUB.Shared, SUB.Failover, SUB.Key_Shared):
            body = SUB(
                topic=TOPIC, subscription=f"s{kind}{number}", consumer_id=number, request_id=number, subType=kind
            )
            body.priority_level, body.durable = -(1 << 31), False
            body.start_message_id.CopyFrom(start)
            body.start_message_rollback_duration_sec = LAST
            body.metadata.extend(PAIRS)
            body.keySharedMeta.keySharedMode = pb.STICKY
            ranges = [pb.IntRange(start=16 * each, end=16 * each + 15) for each in range(REPEATED_MAX)]
            body.keySharedMeta.hashRanges.extend(ranges)
            peer.send(C(type=C.SUBSCRIBE, subscribe=body))
            peer.flow((1 << 32) - 1, number)


REQUESTS = (lookups, lists, producers, subscriptions)


async def longest_step(room: Room, send: Callable[[Peer], None]) -> tuple[float, str]:
    """Return the longest step of the broker's tasks, in calls, while it handles what `send` sends.

    The connection is usable, or closed, at the end."""
    peer, other = await room.connect(), await room.connect()
    await other.producer()
    steps = Steps(trio.lowlevel.current_task(), real=False)
    trio.lowlevel.add_instrument(steps)
    try:
        send(peer)
        await trio.sleep(30)
    finally:
        trio.lowlevel.remove_instrument(steps)
    await other.publish(b"others go on")
    return steps.longest, steps.where


@pytest.mark.parametrize("send", REQUESTS)
async def test_no_request_holds_the_loop_whatever_its_arguments(send: Callable[[Peer], None], room: Room) -> None:
    longest, where = await longest_step(room, send)
    assert 0 < longest < CALLS_MAX, where


async def test_a_step_that_holds_the_loop_is_found(room: Room) -> None:
    """The planted bug is a check that compares every pair of properties with every other pair."""

    def quadratic(connection: object, pairs: list[pb.KeyValue]) -> None:
        for one in pairs[:300]:
            sum(one.key.__eq__(other.key) is True for other in pairs[:300])

    with patch.object(creation, "check_properties", quadratic):
        assert (await longest_step(room, producers))[0] > CALLS_MAX


async def test_a_client_with_a_long_version_is_served_and_its_version_is_cut(room: Room) -> None:
    peer = room.open()
    connect = pb.CommandConnect(client_version=LONG, protocol_version=(1 << 31) - 1)
    peer.send(C(type=C.CONNECT, connect=connect))
    assert (await peer.expect(C.CONNECTED)).connected.protocol_version == 20
    [connection] = room.broker.connections
    assert connection.client_version == LONG[:CLIENT_VERSION_MAX]

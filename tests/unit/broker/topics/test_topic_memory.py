"""Memory of one loaded topic among thousands, with idle clients and after they have left.

Memory that clients need and give back counts too: the places that it leaves between what stays are as lost to the
process as what stays, until the next clients take them. tests/unit/managed_ledger/test_memory.py has the logs alone."""

from __future__ import annotations

import gc
import tracemalloc

from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.paths import ROOT
from tests.unit.broker.peers import Peer, Room

TOPICS = 100
IDLE_MAX = 6300
"""Bytes of an idle topic and its subscription, with an open ledger for neither: 5960 on Python 3.11, and 6710 before
subscriptions without consumers shared their policy and the changes that are yet to be stored."""
CLIENTS_MAX = 2600
"""Bytes of its idle producer and consumer: 2190, and 3100 before they made encoders, features and what waits at their
first message."""
ROOMS = ("broker", "cursors", "managed_ledger", "quire")
FILTERS = [tracemalloc.Filter(True, f"{ROOT}/{room}/*") for room in ROOMS]


async def serve(peer: Peer, first: int) -> None:
    """Open a producer and a consumer on each topic."""
    for number in range(first, first + TOPICS):
        topic = f"persistent://public/default/topic-{number}"
        await peer.producer(topic, number)
        await peer.subscribe(topic, "s", number, subType=pb.CommandSubscribe.Shared)


def taken() -> int:
    """Return the bytes that the rooms have allocated and not given back."""
    gc.collect()
    found = tracemalloc.take_snapshot().filter_traces(FILTERS)
    return sum(trace.size for trace in found.traces)


async def test_an_idle_topic_takes_little_memory_with_idle_clients_and_without(room: Room) -> None:
    await serve(await room.connect(), 1)  # objects that are made once
    peer = await room.connect()
    tracemalloc.start()
    try:
        await serve(peer, 1 + TOPICS)
        used = taken()
        await peer.closed_by_us()
        idle = taken()
    finally:
        tracemalloc.stop()
    assert len(list(room.broker.topics.loaded())) == 2 * TOPICS
    assert idle / TOPICS < IDLE_MAX
    assert (used - idle) / TOPICS < CLIENTS_MAX

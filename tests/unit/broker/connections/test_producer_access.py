"""Producers that want a topic for themselves, through the commands of their clients."""

from __future__ import annotations

from typing import Any

import trio

from quire.metadata.errors import MetadataUnavailableError
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import C
from tests.support.waiting import until
from tests.unit.broker.peers import Peer, Room

ALONE: dict[str, Any] = {"producer_access_mode": pb.Exclusive}
WAITING: dict[str, Any] = {"producer_access_mode": pb.WaitForExclusive}


async def added(peer: Peer, **options: Any) -> pb.CommandProducerSuccess:
    peer.ask_producer(**options)
    return await success(peer)


async def success(peer: Peer) -> pb.CommandProducerSuccess:
    found = (await peer.expect(C.PRODUCER_SUCCESS)).producer_success
    assert found.producer_ready
    return found


async def queued(peer: Peer, **options: Any) -> None:
    peer.ask_producer(**{**WAITING, **options})
    found = (await peer.expect(C.PRODUCER_SUCCESS)).producer_success
    assert not found.producer_ready
    assert not found.HasField("topic_epoch")


async def refusal(peer: Peer, *alive: Peer, **options: Any) -> pb.ServerError:
    """Return the error of a PRODUCER, while the clients in `alive` answer PINGs."""
    async with trio.open_nursery() as nursery:
        for each in alive:
            nursery.start_soon(each.silent, 600)
        peer.ask_producer(**options)
        code, _ = await peer.error()
        nursery.cancel_scope.cancel()
    return code


async def test_waiting_producers_do_not_count_as_requests_under_way(room: Room) -> None:
    peer, waiting = await room.connect(), await room.connect()
    await added(peer, **ALONE)
    for number in range(5):
        await queued(waiting, producer_id=number)
    [connection] = [each for each in room.broker.connections if each.creating]
    assert connection.requests_in_flight == 0
    await waiting.closed_by_us()
    await until(lambda: connection.requests_in_flight == 0)


async def test_a_topic_whose_epoch_cannot_be_stored_is_not_taken(room: Room, peer: Peer) -> None:
    await peer.producer()
    await peer.end_producer()

    async def away() -> None:
        raise MetadataUnavailableError("away")

    store = room.cluster.stores[0]
    store.point = away
    assert await refusal(peer, **ALONE) == pb.ServiceNotReady
    store.point = None
    assert (await added(peer, **ALONE)).topic_epoch == 0
    await peer.publish(b"mine")

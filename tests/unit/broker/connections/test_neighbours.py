"""Limits of one role, and of one address (broker/neighbours, broker/connections/charges.py)."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from broker.connections.connection import Connection
from broker.neighbours.neighbours import Neighbours
from broker.security.authorization.config import AuthorizationOptions
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.credentials import authentication, token
from tests.support.pulsar_frames import C
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, FakeStream, Peer, Room, in_broker

NAME = "persistent://public/default/made-"


def neighbours(room: Room) -> Neighbours:
    found = room.broker.context.neighbours
    assert found is not None
    return found


async def log_in(room: Room, role: str, address: str = "test") -> Peer:
    """Send CONNECT with a token of a role, from an address."""
    stream = FakeStream()
    stream.peer = f"{address}:1"
    room.nursery.start_soon(room.broker.handle, stream)
    peer = Peer(stream)
    body = pb.CommandConnect(client_version="t", protocol_version=20, auth_method_name="token")
    body.auth_data = token(role).encode()
    peer.send(C(type=C.CONNECT, connect=body))
    return peer


async def served(room: Room, role: str, address: str = "test") -> Peer:
    peer = await log_in(room, role, address)
    await peer.expect(C.CONNECTED)
    return peer


def connection_of(room: Room, peer: Peer) -> Connection:
    return room.connection_of(peer)


async def test_without_a_limit_nothing_is_counted(room: Room, peer: Peer) -> None:
    assert room.broker.context.neighbours is None
    assert connection_of(room, peer).neighbour is None


async def test_a_connection_of_a_role_above_its_limit_is_refused_and_others_are_served() -> None:
    permissions = AuthorizationOptions(enabled=True, super_users=("admin",))
    async with in_broker(authentication=authentication(), authorization=permissions, role_connections_max=2) as room:
        first, _ = await served(room, "greedy"), await served(room, "greedy", "elsewhere")
        refused = await log_in(room, "greedy", "a-third-place")
        code, text = await refused.error()
        assert (code, text) == (pb.NotAllowedError, "the role has 2 connections already")
        await refused.closed()
        await served(room, "modest")
        for _ in range(5):
            await served(room, "admin")  # a super user
        await first.closed_by_us()
        await served(room, "greedy")


@pytest.mark.broker(address_topics_per_minute_max=3)
async def test_topics_made_by_an_address_in_a_minute_are_bounded(room: Room, peer: Peer) -> None:
    for number in range(3):
        await peer.producer(f"{NAME}{number}", producer_id=number)
    assert await peer.refused_producer(f"{NAME}3", producer_id=3) == pb.NotAllowedError
    assert await peer.refused_consumer(f"{NAME}4") == pb.NotAllowedError
    assert await peer.refused_producer("non-persistent://public/default/n", producer_id=3) == pb.NotAllowedError
    await peer.producer(f"{NAME}0", producer_id=9)  # exists
    await peer.subscribe(f"{NAME}1")
    await peer.silent(61)
    await peer.producer(f"{NAME}3", producer_id=3)


@pytest.mark.broker(address_topics_per_minute_max=1, partitions_default=2, auto_topic_type="partitioned")
async def test_a_partitioned_topic_counts_as_one(room: Room, peer: Peer) -> None:
    async def partitions(name: str) -> pb.CommandPartitionedTopicMetadataResponse:
        body = pb.CommandPartitionedTopicMetadata(topic=name, request_id=1)
        peer.send(C(type=C.PARTITIONED_METADATA, partitionMetadata=body))
        return (await peer.expect(C.PARTITIONED_METADATA_RESPONSE)).partitionMetadataResponse

    assert (await partitions(f"{NAME}0")).partitions == 2
    for number in (0, 1):
        await peer.producer(f"{NAME}0-partition-{number}", producer_id=number)
    assert (await partitions(f"{NAME}1")).error == pb.NotAllowedError
    assert (await partitions(f"{NAME}0")).partitions == 2


async def test_one_role_does_not_take_the_whole_publish_buffer() -> None:
    """Bookies do not answer: the greedy role is not read at its share, and the modest one goes on."""
    checks = authentication()
    async with in_broker(authentication=checks, publish_buffer_bytes_max=100_000, role_publish_percent=20) as room:
        greedy, again, modest = await served(room, "greedy"), await served(room, "greedy"), await served(room, "modest")
        for peer in (greedy, again, modest):
            await peer.producer(TOPIC)
        room.cluster.ledgers.hold_appends()
        for number in range(100):
            greedy.send_message(b"x" * 1000, number)
            await trio.testing.wait_all_tasks_blocked()
        again.send_message(b"x" * 1000, 0)
        await trio.testing.wait_all_tasks_blocked()
        share = neighbours(room).role("greedy")
        assert share is not None
        assert 20_000 < share.bytes < 25_000
        for number in range(10):
            modest.send_message(b"y" * 1000, number)
            await trio.testing.wait_all_tasks_blocked()
        assert connection_of(room, modest).sends_in_flight == 10
        await greedy.closed_by_us()
        back = await served(room, "greedy")
        await back.producer("persistent://public/default/other")
        back.send_message(b"x" * 1000, 0)
        await trio.testing.wait_all_tasks_blocked()
        assert neighbours(room).role("greedy") is share, "what it left in storage still counts"
        room.cluster.ledgers.release()
        for _ in range(10):
            await modest.expect(C.SEND_RECEIPT)
        await again.expect(C.SEND_RECEIPT)
        await back.expect(C.SEND_RECEIPT)
        assert share.bytes == 0


@pytest.mark.broker(address_requests_max=4)
async def test_requests_in_flight_of_an_address_are_bounded_over_its_connections(room: Room) -> None:
    peers = [await room.connect() for _ in range(3)]
    [first, *others] = peers
    share = neighbours(room)._addresses.of("test")
    share.requests = 5  # of requests that are not answered
    for other in others:
        other.ask_lookup("persistent://public/default/never-seen")
    await trio.testing.wait_all_tasks_blocked()
    assert [bytes(other.stream.sent) for other in others] == [b"", b""], "nothing was read"
    for _ in range(5):
        share.give_request()
    for other in others:
        await other.expect(C.LOOKUP_RESPONSE)
    await until(lambda: share.requests == 0)
    await first.closed_by_us()
    for other in others:
        await other.closed_by_us()
    neighbours(room).sweep()
    assert len(neighbours(room)._addresses) == 0

"""Transactions of a broker whose participants and snapshots are at another one: broker/transactions/remote.py and
snapshots/remote.py, over connections to a broker in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

import pytest
import trio

from broker.context import Context
from broker.errors import MetadataUnavailableError, ServiceNotReadyError
from broker.ownership.local import OwnEverything
from broker.ownership.lookup import Connect
from broker.transactions.buffer_state import Aborted, Snapshot
from broker.transactions.errors import CoordinatorNotFoundError, InvalidStatusError, TransactionNotFoundError
from broker.transactions.remote import RemoteBrokers
from broker.transactions.snapshots.store import Snapshots
from broker.transactions.txn_id import COORDINATORS, TxnId
from quire.ledger.position import Position
from quire.metadata.store import Create
from quire.wire.pulsar.names import TopicName
from quire.world.doors import Buffer, Listener, Stream
from quire.world.socket_options import DEFAULT_OPTIONS, SocketOptions
from tests.support.pulsar_frames import SUB
from tests.unit.broker.peers import OPTIONS, TOPIC, FakeStream, Room, in_broker
from tests.unit.broker.transacting import Client, id_of, producer, publish
from tests.unit.managed_ledger.fake_ledgers import fake_world

NAME = TopicName.parse(TOPIC)


class FarEnd(FakeStream):
    """The broker's end of a connection, at which the client's waits for output."""

    def __init__(self) -> None:
        super().__init__()
        self.has_sent = trio.Event()

    def send_nowait(self, parts: Sequence[Buffer]) -> int:
        self.has_sent.set()
        return super().send_nowait(parts)

    def close(self) -> None:
        super().close()
        self.has_sent.set()


class Wire:
    """The client's end of a connection to the broker of a room."""

    peer_certificate: bytes | None = None
    peer = "broker:6650"

    def __init__(self, far: FarEnd) -> None:
        self._far = far

    async def receive_into(self, buffer: memoryview, at_least: int = 1) -> int:
        while not self._far.sent and not self._far.closed:
            self._far.has_sent = trio.Event()
            await self._far.has_sent.wait()
        size = min(len(buffer), len(self._far.sent))
        buffer[:size] = self._far.sent[:size]
        del self._far.sent[:size]
        return size

    def send_nowait(self, parts: Sequence[Buffer]) -> int:
        if self._far.closed:
            raise BrokenPipeError(32, "closed")
        data = b"".join(parts)
        self._far.arrive(data)
        return len(data)

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        self._far.close()


@dataclass
class ToBroker:
    """A network on which the broker of a room is the only server, unless it is away."""

    room: Room
    is_away: bool = False
    opened: int = 0

    async def connect(self, host: str, port: int) -> Stream:
        await trio.lowlevel.checkpoint()
        if self.is_away:
            raise ConnectionRefusedError(111, "away")
        assert (host, port) == ("test", 6650)
        self.opened += 1
        far = FarEnd()
        self.room.nursery.start_soon(self.room.broker.handle, far)
        return Wire(far)

    async def listen(self, host: str, port: int, options: SocketOptions = DEFAULT_OPTIONS) -> Listener:
        raise AssertionError("no server is started")


class Elsewhere(OwnEverything):
    """Ownership of a broker that has nothing."""

    async def lookup(self, name: TopicName, *, authoritative: bool) -> Connect:
        return Connect("pulsar://test:6650", "http://test:8080", mine=False)


class Other:
    """Another broker than that of the room, which has all topics."""

    def __init__(self, room: Room) -> None:
        self.network = ToBroker(room)
        world = replace(fake_world(), network=self.network)
        context = Context(world, OPTIONS, room.nursery, service_url="pulsar://test:6650")
        broker = room.broker
        self.snapshots = Snapshots(context, broker.topics, broker.metadata, Elsewhere())
        self.brokers = RemoteBrokers(context)

    def close(self) -> None:
        self.snapshots.close()
        self.brokers.close()


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with in_broker(transactions=True) as room:
        await room.broker.metadata.multi([Create(path="/admin/policies/pulsar/system", make_parents=True)])
        yield room


@pytest.fixture
async def other(room: Room) -> AsyncIterator[Other]:
    other = Other(room)
    yield other
    other.close()


def snapshot(number: int, *aborted: int) -> Snapshot:
    return Snapshot(
        Position(5, number), {TxnId(3, each): Aborted(None, Position(5, each)) for each in aborted}, {3: number}
    )


def has_all(ledger_id: int) -> bool:
    return True


# Snapshots


async def test_what_is_stored_at_another_broker_is_found_there_and_here(room: Room, other: Other) -> None:
    store = room.broker._snapshot_store()
    assert await other.snapshots.find(NAME, has_all) is None
    await store.store(NAME, snapshot(1))  # makes the topic
    assert await other.snapshots.find(NAME, has_all) == snapshot(1)
    for number in range(2, 5):
        await other.snapshots.store(NAME, snapshot(number, number - 1))
        assert await store.find(NAME, has_all) == snapshot(number, number - 1)
        assert await other.snapshots.find(NAME, has_all) == snapshot(number, number - 1)
    # One of another topic is not mixed with it, and what comes later is read on from there.
    neighbour = TopicName.parse("persistent://public/default/neighbour")
    await other.snapshots.store(neighbour, snapshot(9))
    assert await other.snapshots.find(NAME, has_all) == snapshot(4, 3)
    assert await other.snapshots.find(neighbour, has_all) == snapshot(9)
    await other.snapshots.forget(NAME)
    assert await other.snapshots.find(NAME, has_all) is None
    assert await store.find(NAME, has_all) is None
    assert await store.find(neighbour, has_all) == snapshot(9)
    assert other.network.opened > 0


async def test_many_callers_read_at_the_same_time(room: Room, other: Other) -> None:
    store = room.broker._snapshot_store()
    names = [TopicName.parse(f"persistent://public/default/t{number}") for number in range(20)]
    for number, name in enumerate(names):
        await store.store(name, snapshot(number))
    found: dict[TopicName, Snapshot | None] = {}

    async def find(name: TopicName) -> None:
        found[name] = await other.snapshots.find(name, has_all)

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(find, name)
    assert found == {name: snapshot(number) for number, name in enumerate(names)}


async def test_while_the_other_broker_is_away_nothing_is_taken_for_granted(room: Room, other: Other) -> None:
    await room.broker._snapshot_store().store(NAME, snapshot(1))
    other.network.is_away = True
    with pytest.raises(MetadataUnavailableError, match="cannot be read"):
        await other.snapshots.find(NAME, has_all)
    with pytest.raises(ServiceNotReadyError, match="not stored"):
        await other.snapshots.store(NAME, snapshot(2))
    await other.snapshots.forget(NAME)  # what fails is left
    other.network.is_away = False
    assert await other.snapshots.find(NAME, has_all) == snapshot(1)


# Participants and coordinators


async def test_ends_are_brought_to_topics_and_subscriptions_of_another_broker(room: Room, other: Other) -> None:
    client, sender = await Client.of(room), await producer(room)
    place = await publish(sender, b"plain", 0)
    peer = await room.connect()
    await peer.subscribe(TOPIC, "s", subType=SUB.Shared, initialPosition=SUB.Earliest)
    ids = [await client.new() for _ in range(2)]
    for number, txn in enumerate(ids, 1):
        await client.add_partition(txn, TOPIC)
        await publish(sender, b"m", number, txn)
    await peer.answered_ack(place, **id_of(ids[0]))
    committed, aborted = (TxnId(*each) for each in ids)
    transactions = (await room.topic()).transactions
    await other.brokers.end_on_subscription(NAME, "s", committed, commit=True, low_watermark=-1)
    assert not transactions.acks["s"].state.open
    assert (await room.topic()).subscriptions["s"].cursor.mark_delete == Position(place.ledgerId, place.entryId)
    await other.brokers.end_on_partition(NAME, committed, commit=True, low_watermark=-1)
    await other.brokers.end_on_partition(NAME, aborted, commit=False, low_watermark=committed.least)
    state = transactions.buffer.state
    assert not state.open
    assert (state.is_hidden(committed), state.is_hidden(aborted)) == (False, True)
    assert state.low_watermarks == {0: committed.least}


async def test_a_coordinator_of_another_broker_says_whether_a_transaction_is_open(room: Room, other: Other) -> None:
    client = await Client.of(room)
    txn = await client.new()
    first = COORDINATORS.with_partition(0)
    await other.brokers.check_open(first, TxnId(*txn))
    with pytest.raises(TransactionNotFoundError):
        await other.brokers.check_open(first, TxnId(0, 999))
    with pytest.raises(CoordinatorNotFoundError):
        await other.brokers.check_open(COORDINATORS.with_partition(3), TxnId(3, 0))
    service = room.broker.transactions
    assert service is not None
    service.coordinators[0].state.find(TxnId(*txn)).status = 2  # it is being committed
    with pytest.raises(InvalidStatusError):
        await other.brokers.check_open(first, TxnId(*txn))
    other.network.is_away = True
    other.brokers.close()
    with pytest.raises(ServiceNotReadyError):
        await RemoteBrokers(other.brokers._context).check_open(first, TxnId(*txn))

"""No command holds the event loop, whatever its arguments (`broker.connections.acks`, `broker.connections.connection`,
`quire.wire.pulsar.large_commands`).

Each command is sent with its largest legal argument and with larger ones. The longest step of any task of the broker is
measured: in calls of functions, which are the same on every machine, and with `--full` in milliseconds of CPU.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio

from broker.config import BrokerOptions
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import SUB, C
from tests.unit.broker.counted_steps import CALLS_MAX, Steps
from tests.unit.broker.peers import TOPIC, Peer, Room, in_broker

STEP_MAX_S = 0.010
FRAME = 5 << 20
LAST = (1 << 63) - 1
ENDS = (0, 1, LAST - 1, LAST, LAST + 1, (1 << 64) - 2, (1 << 64) - 1)


Command = Callable[[Peer], Awaitable[None]]


def ids(count: int, first: int = 0, ledger: int = 1, **options: Any) -> list[pb.MessageIdData]:
    return [pb.MessageIdData(ledgerId=ledger, entryId=first + number, **options) for number in range(count)]


def ack_sets(words: int) -> list[pb.MessageIdData]:
    return [pb.MessageIdData(ledgerId=1, entryId=number, ack_set=[1] * words) for number in (0, 1, 999_999)]


def acks(*given: pb.MessageIdData, cumulative: bool = False) -> Command:
    async def send(peer: Peer) -> None:
        await peer.answered_ack(*given, cumulative=cumulative)

    return send


def redeliveries(*given: pb.MessageIdData) -> Command:
    async def send(peer: Peer) -> None:
        peer.redeliver(*given)

    return send


def flows(permits: int, times: int = 1) -> Command:
    async def send(peer: Peer) -> None:
        for _ in range(times):
            peer.flow(permits)

    return send


def seeks(**target: Any) -> Command:
    async def send(peer: Peer) -> None:
        peer.seek(**target)

    return send


def commands(ids_max: int, frame: int) -> dict[str, Callable[[], Command]]:
    """Return the commands to test: at most `ids_max` ids are allowed, and a frame has `frame` bytes; an id takes 8
    bytes here."""
    last = pb.MessageIdData(ledgerId=1, entryId=0, ack_set=[1] * (frame // 2 - 100))
    return {
        "ack of as many ids as are allowed": lambda: acks(*ids(ids_max)),
        "ack of as many ids, none in the log": lambda: acks(*ids(ids_max, ledger=LAST)),
        "ack of as many parts of batches": lambda: acks(*ids(ids_max, ack_set=[3])),
        "ack of more ids than are allowed": lambda: acks(*ids(ids_max + 1)),
        "ack of a frame full of ids": lambda: acks(*ids(frame // 10)),
        "ack with the longest ack_set": lambda: acks(*ack_sets(1024)),
        "ack with a longer ack_set": lambda: acks(*ack_sets(1025)),
        "ack with a frame full of ack_set": lambda: acks(last),
        "cumulative ack with a longer ack_set": lambda: acks(ack_sets(20_000)[0], cumulative=True),
        "redeliver of as many ids as are allowed": lambda: redeliveries(*ids(ids_max)),
        "redeliver of a frame full of ids": lambda: redeliveries(*ids(frame // 10)),
        "redeliver of all": lambda: redeliveries(),
        "flow of all permits": lambda: flows((1 << 32) - 1),
        "a chunk full of flows": lambda: flows(1, frame // 100),
        "seek with a longer ack_set": lambda: seeks(message_id=ack_sets(20_000)[0]),
        "seek to the end of time": lambda: seeks(message_publish_time=(1 << 64) - 1),
    }


WHOLE = commands(BrokerOptions().acks_in_command_max, FRAME)


async def served(room: Room, kind: int, messages: int, topic: str) -> Peer:
    """Return a consumer that holds `messages`, published by another connection."""
    producer, consumer = await room.connect(), await room.connect()
    await producer.producer(topic)
    for first in range(0, messages, 350):
        await producer.publish(*[b"m"] * 350, first=first)
    await consumer.subscribe(topic, subType=kind, permits=messages)
    await consumer.payloads(messages)
    return consumer


async def drive(room: Room, command: Callable[[], Command], kind: int, *, real: bool, topic: str = TOPIC) -> Steps:
    """Return the steps that the command causes, for a consumer that holds 350 messages."""
    peer, other = await served(room, kind, 350, topic), await room.connect()
    act = command()
    steps = Steps(trio.lowlevel.current_task(), real=real)
    trio.lowlevel.add_instrument(steps)
    await act(peer)
    peer.flow(3000)
    assert (await other.lookup()).response == pb.CommandLookupTopicResponse.Connect
    with trio.move_on_after(0.1):
        while True:
            await peer.receive()
    trio.lowlevel.remove_instrument(steps)
    sys.setprofile(None)
    assert not other.stream.closed
    for each in (peer, other):
        await each.closed_by_us()
    return steps


@pytest.mark.parametrize("kind", [SUB.Exclusive, SUB.Shared], ids=["exclusive", "shared"])
@pytest.mark.broker(message_size_max=FRAME, acks_in_command_max=3000)
async def test_no_command_holds_the_event_loop(kind: int, room: Room) -> None:
    for number, (name, command) in enumerate(commands(3_000, 150_000).items()):
        steps = await drive(room, command, kind, real=False, topic=f"{TOPIC}-{number}")
        assert steps.longest <= CALLS_MAX, f"{name}: {steps.longest:.0f} calls in one step of {steps.where}"


async def test_ids_at_the_ends_of_their_ranges_are_answered_and_harm_nothing(room: Room) -> None:
    peer = await served(room, SUB.Shared, 350, TOPIC)
    for ledger_id in ENDS:
        for entry_id in ENDS:
            named = pb.MessageIdData(ledgerId=ledger_id, entryId=entry_id)
            part = pb.MessageIdData(ledgerId=ledger_id, entryId=entry_id, ack_set=[3])
            assert (await peer.answered_ack(named)).request_id
            assert (await peer.answered_ack(part)).request_id
            peer.redeliver(named)
    assert 340 <= (await room.topic()).subscriptions["s"].backlog <= 350
    for ledger_id in ENDS:
        for entry_id in ENDS:
            number = 1000 + len(ENDS) * ENDS.index(ledger_id) + ENDS.index(entry_id)
            start = pb.MessageIdData(ledgerId=ledger_id, entryId=entry_id)
            await peer.subscribe(TOPIC, f"reader-{number}", number, durable=False, start_message_id=start)
            peer.seek(number, message_id=pb.MessageIdData(ledgerId=ledger_id, entryId=entry_id, ack_set=[1]))
            while (await peer.receive())[0].type != C.SUCCESS:
                pass
    peer = await room.connect()
    for end in ENDS:
        await peer.subscribe(TOPIC, f"ends-{end}", end, initialPosition=SUB.Latest, permits=1)
        peer.seek(end, message_publish_time=end)
        while (await peer.receive())[0].type != C.SUCCESS:
            pass
    assert not peer.stream.closed


@pytest.mark.full
@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("kind", [SUB.Exclusive, SUB.Shared], ids=["exclusive", "shared"])
async def test_no_command_holds_the_event_loop_for_10_ms(name: str, kind: int, without_collector: None) -> None:
    """The shortest of three runs counts, so that other processes of the machine do not matter."""
    tries: list[tuple[float, str]] = []

    async def test(room: Room) -> None:
        steps = await drive(room, WHOLE[name], kind, real=True)
        tries.append((steps.longest, steps.where))

    for _ in range(3):
        async with in_broker(message_size_max=FRAME) as room:
            await test(room)
    longest, where = min(tries)
    assert longest <= STEP_MAX_S, f"{1000 * longest:.1f} ms in one step of {where}"


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Freeze existing objects, as a server does at its start (`quire.servers.process`); otherwise the collector would
    count all objects of pytest."""
    gc.disable()
    yield
    gc.enable()

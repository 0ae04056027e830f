"""Ended connections are freed at once. The garbage collector of a server looks at old objects rarely, and a bad
neighbour could fill the memory with frames of connections that it ended."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import trio.testing

from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import C, command, frame, send
from tests.unit.broker.peers import TOPIC, Room

CONNECT = frame(command("CONNECT", "connect", client_version="t", protocol_version=20))
PRODUCER = frame(command("PRODUCER", "producer", topic=TOPIC, producer_id=1, request_id=1))
SUBSCRIBE = frame(
    command("SUBSCRIBE", "subscribe", topic=TOPIC, subscription="s", subType=1, consumer_id=1, request_id=2)
)
LOOKUP = frame(command("LOOKUP", "lookupTopic", topic="persistent://public/default/never", request_id=3))
NO_PARTITION = frame(command("PRODUCER", "producer", topic=f"{TOPIC}-partition-7", producer_id=2, request_id=4))
NEVER = [pb.MessageIdData(ledgerId=99, entryId=each) for each in range(5000)]
ACK = frame(command("ACK", "ack", consumer_id=1, ack_type=0, message_id=NEVER[:2]))
LARGE_ACK = frame(command("ACK", "ack", consumer_id=1, ack_type=0, message_id=NEVER))
LARGE = frame(command("CLOSE_PRODUCER", "close_producer", producer_id=3, request_id=8)) * 1000


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.freeze()  # what is there already is out of `errors` too, which would look at each object of the whole run
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("breaks", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\0\0\0\1", id="no frame"),
        pytest.param(CONNECT + LARGE + b"\0\0\0\1", id="no frame behind commands"),
        pytest.param(CONNECT + frame(b"\x08\x12\xff"), id="no command"),
        pytest.param(frame(C(type=C.PING)), id="PING before CONNECT"),
        pytest.param(CONNECT + LARGE + CONNECT, id="a second CONNECT"),
        pytest.param(CONNECT + send(1, producer_id=7), id="SEND of no producer"),
        pytest.param(CONNECT + PRODUCER, id="a producer"),
        pytest.param(CONNECT + SUBSCRIBE, id="a consumer"),
        pytest.param(CONNECT + LOOKUP + LARGE, id="a request in a task"),
        pytest.param(CONNECT + LOOKUP + b"\0\0\0\1", id="no frame behind a request"),
    ],
)
async def test_an_ended_connection_is_freed_at_once(room: Room, sent: bytes, breaks: bool) -> None:
    before = errors()
    peer = room.open()
    await trio.testing.wait_all_tasks_blocked()
    [known] = [weakref.ref(each) for each in room.broker.connections]
    peer.stream.arrive(sent)
    if breaks:
        peer.stream.refuses = True
    await trio.testing.wait_all_tasks_blocked()
    peer.stream.close()
    await trio.testing.wait_all_tasks_blocked()
    assert not room.broker.connections
    assert known() is None
    assert errors() == before


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize(
    ("first", "then"),
    [
        pytest.param(SUBSCRIBE, ACK, id="invalid acknowledgements"),
        pytest.param(SUBSCRIBE, LARGE_ACK, id="many invalid acknowledgements"),
        pytest.param(NO_PARTITION, b"", id="no such partition"),
        pytest.param(PRODUCER, b"\0\0\0\1", id="no frame"),
        pytest.param(PRODUCER, CONNECT, id="a second CONNECT"),
        pytest.param(SUBSCRIBE, PRODUCER + b"\0\0\0\1", id="no frame behind a request"),
    ],
)
@pytest.mark.parametrize("checkpoints", [5, 100])
async def test_its_errors_are_freed_with_it(room: Room, first: bytes, then: bytes, checkpoints: int) -> None:
    before = errors()
    peer = room.open()
    await trio.testing.wait_all_tasks_blocked()
    peer.stream.arrive(CONNECT + first)
    for _ in range(checkpoints):
        await trio.lowlevel.checkpoint()
    peer.stream.arrive(then)
    await trio.testing.wait_all_tasks_blocked()
    peer.stream.close()
    await trio.testing.wait_all_tasks_blocked()
    assert not room.broker.connections
    assert errors() == before


def errors() -> list[str]:
    """Return the errors that something refers to, or that a cycle keeps."""
    return sorted(repr(each) for each in gc.get_objects() if isinstance(each, BaseException))

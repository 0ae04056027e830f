"""Quire's bookie, on a port, gives the original's answers to recorded requests of Apache BookKeeper's client, byte by
byte. How the conversations were recorded: bookkeeper/README.md.

Requests are sent in their recorded order, each connection on a socket of its own, and none before the answers that the
original had given by then. Answers may overtake each other. `like_the_original` has the permitted differences.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from bookie.server import serve_bookie
from quire.metadata.local.memory import MemoryTree
from quire.wire.bookkeeper import BookkeeperProtocol_pb2 as pb
from quire.world.doors import Stream, World
from simulation.machines.world import run_world
from tests.unit.bookie.build import CONFIG, cluster, opened

WIRE = Path(__file__).parent / "bookkeeper/wire"
CONVERSATIONS = [path.name for path in sorted(WIRE.glob("*.jsonl"))]
CLOCK_KNOWN_MS = 1 << 62
SIZE_KNOWN = 1 << 50


class Peer:
    """A client's end of one connection: whole answers, in order of arrival."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._rest = bytearray()
        self.answers: list[bytes] = []

    async def send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._stream.send_nowait([rest]) :]
            if rest:
                await self._stream.wait_writable()

    async def receive(self) -> None:
        """Wait for more answers."""
        space = bytearray(1 << 16)
        size = await self._stream.receive_into(memoryview(space))
        assert size, "the bookie closed the connection"
        self._rest += space[:size]
        while len(self._rest) >= 4 and len(self._rest) >= (end := 4 + int.from_bytes(self._rest[:4], "big")):
            self.answers.append(like_the_original(bytes(self._rest[:end])))
            del self._rest[:end]


def like_the_original(frame: bytes) -> bytes:
    """Return a frame with fixed values in the fields that depend on the moment and the machine: the time of the LAC and
    the sizes of the disk."""
    if frame[4] != 0x0A:
        return frame
    response = pb.Response.FromString(frame[4:])
    assert response.SerializeToString() == frame[4:], "the bytes are not the canonical ones"
    if response.readResponse.HasField("lacUpdateTimestamp"):
        response.readResponse.lacUpdateTimestamp = CLOCK_KNOWN_MS
    info = response.getBookieInfoResponse
    if info.HasField("totalDiskCapacity"):
        info.totalDiskCapacity = SIZE_KNOWN
    if info.HasField("freeDiskSpace"):
        info.freeDiskSpace = SIZE_KNOWN
    body = response.SerializeToString()
    return len(body).to_bytes(4, "big") + body


def with_bookie_on_a_port(story: Callable[[Callable[[], Awaitable[Peer]]], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        tree = MemoryTree()
        async with opened(world, tree, CONFIG) as bookie, trio.open_nursery() as nursery:
            bookie.total_bytes = lambda folder: SIZE_KNOWN
            stop = trio.Event()
            metadata = await cluster(tree, world)
            serve = partial(serve_bookie, world, bookie, metadata, bind_address="0.0.0.0", stop=stop, grace_s=0)
            address = await nursery.start(serve, name="bookie")

            async def connect() -> Peer:
                return Peer(await world.network.connect("host", address[1]))

            await story(connect)
            stop.set()

    run_world(1, main)


def lines_of(name: str) -> list[tuple[int, str, bytes]]:
    """Return (connection, "client" or "bookie", frame), in order."""
    lines = [json.loads(line) for line in (WIRE / name).read_text().splitlines()]
    return [(line["conn"], line["dir"], bytes.fromhex(line["hex"])) for line in lines if "hex" in line]


def replay(conversation: list[tuple[int, str, bytes]]) -> None:
    async def story(connect: Callable[[], Awaitable[Peer]]) -> None:
        peers: dict[int, Peer] = {}
        for connection, side, frame in conversation:
            if connection not in peers:
                peers[connection] = await connect()
            peer = peers[connection]
            if side == "client":
                await peer.send(frame)
                continue
            expected = like_the_original(frame)
            with trio.move_on_after(10):
                while expected not in peer.answers:
                    await peer.receive()
            assert expected in peer.answers
            peer.answers.remove(expected)
        assert [peer.answers for peer in peers.values() if peer.answers] == []

    with_bookie_on_a_port(story)


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_our_bookie_gives_the_recorded_answers_to_the_recorded_requests(name: str) -> None:
    conversation = lines_of(name)
    if name == "v3-list-of-entries.jsonl":
        # The original's DbLedgerStorage never answers the last request; ours does, as SortedLedgerStorage does.
        sorted_storage = lines_of("v3-list-of-entries-sorted.jsonl")
        assert conversation[-1][1] == "client"
        conversation.append((conversation[-1][0], *_answer_for(conversation[-1][2], sorted_storage[-1][2])))
    replay(conversation)


def _answer_for(request: bytes, answer: bytes) -> tuple[str, bytes]:
    """Return the answer of another bookie to the same request, with this request's ids in it."""
    asked = pb.Request.FromString(request[4:])
    told = pb.Response.FromString(answer[4:])
    told.header.txnId = asked.header.txnId
    told.getListOfEntriesOfLedgerResponse.ledgerId = asked.getListOfEntriesOfLedgerRequest.ledgerId
    body = told.SerializeToString()
    return "bookie", len(body).to_bytes(4, "big") + body


def test_there_are_conversations_in_both_versions() -> None:
    assert sum(name.startswith("v2-") for name in CONVERSATIONS) == 9
    assert sum(name.startswith("v3-") for name in CONVERSATIONS) == 13

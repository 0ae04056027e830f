"""Memory of a standalone server per connection: idle ones, ones that have sent 480 KiB and went idle, and after all
closed.

    scripts/bench connections [--count 5000]

The server is a process of its own; PSS is read from the kernel. Idle means CONNECT and nothing else.
"""

from __future__ import annotations

import asyncio
import resource
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from bench.procs import pss_mb
from bench.raw import PONG, frame
from bench.servers import Server, quire
from quire.service.programs.command_line import run_command
from quire.wire.pulsar import PulsarApi_pb2 as pb

CONNECT = frame(
    pb.BaseCommand(
        type=pb.BaseCommand.CONNECT,
        connect=pb.CommandConnect(client_version="bench", protocol_version=20, auth_method_name="none"),
    )
)
BURST = b"".join(
    frame(
        pb.BaseCommand(
            type=pb.BaseCommand.CLOSE_CONSUMER,
            close_consumer=pb.CommandCloseConsumer(
                consumer_id=1, request_id=number, assignedBrokerServiceUrl="x" * (60 << 10)
            ),
        )
    )
    for number in range(8)
)
"""480 KiB of commands with short answers."""
AT_ONCE = 200
SETTLE_S = 8.0
"""Longer than the broker's round of housekeeping (5 s), which releases the buffers of idle connections."""


class Peer(asyncio.Protocol):
    """One connection, which keeps only its transport."""

    def __init__(self) -> None:
        self.connected = asyncio.get_running_loop().create_future()
        self.answered = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(CONNECT)

    def data_received(self, data: bytes) -> None:
        if not self.connected.done():
            self.connected.set_result(None)
        else:
            self.answered.set()
            self.transport.write(PONG)


async def opened(port: int, count: int) -> list[Peer]:
    loop = asyncio.get_running_loop()
    peers: list[Peer] = []
    while len(peers) < count:
        size = min(AT_ONCE, count - len(peers))
        made = await asyncio.gather(*(loop.create_connection(Peer, "127.0.0.1", port) for _ in range(size)))
        peers += [peer for _, peer in made]
        await asyncio.gather(*(peer.connected for peer in peers[-size:]))
    return peers


async def measure(server: Server, count: int) -> None:
    def line(what: str, since: float = 0.0) -> float:
        found = pss_mb(server.pids)
        each = f", {(found - since) * 1024 / count:6.1f} KB each" if since else ""
        print(f"{what:<42} {found:7.1f} MB{each}", flush=True)
        return found

    warm = await opened(server.port, 20)
    await asyncio.sleep(1)
    before = line("no connections")
    begun = time.perf_counter()
    peers = await opened(server.port, count)
    took = time.perf_counter() - begun
    line(f"{count} idle connections ({took:.1f} s to open)", before)
    for start in range(0, count, AT_ONCE):
        for peer in peers[start : start + AT_ONCE]:
            peer.answered.clear()
            peer.transport.write(BURST)
        await asyncio.gather(*(peer.answered.wait() for peer in peers[start : start + AT_ONCE]))
    line("right after 480 KiB on each", before)
    await asyncio.sleep(SETTLE_S)
    line(f"idle again for {SETTLE_S:g} s", before)
    for peer in peers:
        peer.transport.abort()
    await asyncio.sleep(SETTLE_S)
    line("all closed", before)
    for peer in warm:
        peer.transport.abort()


def main() -> int:
    """Run the command line; return the exit code."""
    return run_command(connections, name="scripts/bench connections", text=__doc__)


def connections(
    count: Annotated[int, typer.Option()] = 5000,
) -> int:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(prefix="quire-connections-") as folder, quire(Path(folder)) as server:
        server.wait_until_listening(30)
        asyncio.run(measure(server, count))
    return 0

"""Network faults between one client and the bookies of a FakeCluster: cuts, late bytes, resets, changed bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import trio

from quire.ledger.bookies.link import Receive, ignore_closed
from quire.ledger.client import LedgerClient
from quire.ledger.errors import BookieUnavailableError
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.errors import BookkeeperWireError
from quire.wire.bookkeeper.stream import FrameStream
from tests.unit.ledger.fake_bookie import FakeCluster, RacingLedgers


class Way:
    """One direction of one connection: a stream of bytes that are cut into frames at its end."""

    def __init__(self, wire: Wire, deliver: Callable[[Buffer], None]) -> None:
        self._wire = wire
        self._deliver = deliver
        self._frames = FrameStream()
        self._waiting: deque[bytes] = deque()
        self._broken = False
        self._last_at = 0.0

    def put(self, data: bytes, *, shut: bool, delay_s: float) -> None:
        if shut:
            self._waiting.append(data)
        elif delay_s:
            # In order, whatever the delay of each.
            self._last_at = max(self._last_at, trio.current_time() + delay_s)
            trio.lowlevel.spawn_system_task(self._later, data, self._last_at)
        else:
            self._arrive(data)

    def open(self) -> None:
        while self._waiting:
            self._arrive(self._waiting.popleft())

    async def _later(self, data: bytes, at: float) -> None:
        await trio.sleep_until(at)
        self._arrive(data)

    def _arrive(self, data: bytes) -> None:
        if self._broken:
            return
        try:
            while data:
                space = self._frames.space()
                size = min(len(space), len(data))
                space[:size] = data[:size]
                data = data[size:]
                whole = self._frames.received(size)
                if whole:
                    self._deliver(whole)
        except BookkeeperWireError as error:
            self._broken = True
            self._wire.reset(str(error))


class Wire:
    """A BookieLink."""

    def __init__(self, network: FakeNetwork, bookie_id: str) -> None:
        self.closed: Callable[[BookieUnavailableError], None] = ignore_closed
        self.bookie_id = bookie_id
        self._network = network
        self._receive: Receive | None = None
        self._open = True
        self._link = network.cluster.bookies[bookie_id].connect()
        self._link.set_receiver(self._answer)
        self._link.closed = lambda error: self.reset(str(error))
        self.requests = Way(self, self._arrived)
        self.answers = Way(self, self._heard)

    def set_receiver(self, receive: Receive) -> None:
        self._receive = receive

    def send(self, frames: Sequence[v2.Frame]) -> None:
        parts: list[Buffer] = []
        for frame in frames:
            parts += frame if isinstance(frame, tuple) else (frame,)
        network = self._network
        data = network.change(self, b"".join(parts)) if self._open else b""
        if data:
            self.requests.put(data, shut=self.bookie_id in network.deaf, delay_s=network.delay_s())

    def _arrived(self, data: Buffer) -> None:
        try:
            self._link.send([data])
        except AssertionError:
            self.reset("the bookie does not know such a request")  # it accepts only what clients send

    def _answer(self, data: Buffer) -> None:
        network = self._network
        changed = network.change_answer(self, bytes(data))
        if changed:
            self.answers.put(changed, shut=self.bookie_id in network.mute, delay_s=network.delay_s())

    def _heard(self, data: Buffer) -> None:
        if self._open and self._receive is not None:
            self._receive(data)

    def reset(self, why: str = "connection reset") -> None:
        if self._open:
            self._open = False
            self.closed(BookieUnavailableError(f"bookie {self.bookie_id}: {why}"))

    def close(self) -> None:
        self._open = False


class FakeNetwork:
    """Network of one client. `ledgers`: its own access to the metadata, if it differs from the cluster's."""

    def __init__(self, cluster: FakeCluster, ledgers: RacingLedgers | None = None) -> None:
        self.cluster = cluster
        self.ledgers = ledgers or cluster.ledgers
        self.deaf: set[str] = set()
        """Bookies that receive nothing."""
        self.mute: set[str] = set()
        """Bookies whose answers are lost."""
        self.delay_s: Callable[[], float] = lambda: 0.0
        self.change: Callable[[Wire, bytes], bytes] = lambda wire, data: data
        """Function that changes the data sent to a bookie."""
        self.change_answer: Callable[[Wire, bytes], bytes] = lambda wire, data: data
        self.wires: list[Wire] = []

    def connect(self, bookie_id: str) -> Wire:
        wire = Wire(self, bookie_id)
        self.wires.append(wire)
        return wire

    def heal(self) -> None:
        self.deaf.clear()
        self.mute.clear()
        for wire in self.wires:
            wire.requests.open()
            wire.answers.open()

    def client(self, **config: Any) -> AbstractAsyncContextManager[LedgerClient]:
        return self.cluster.client(connect=self.connect, ledgers=self.ledgers, **config)

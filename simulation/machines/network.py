"""The simulated network: late, split, cut, reset, partitioned; all drawn from the seed.

Hosts are known by name; there is no name service. Each direction of a connection is a `_Pipe`: what was sent lies in it
with the time of its arrival, and no task is needed to bring it there. The bytes in a pipe that the reader has not taken
are bounded by its window, so a slow reader holds its writer up as a socket does.
"""

from __future__ import annotations

import errno
import os
import random
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from math import inf

import trio

from quire.world.doors import Buffer, Listener, Stream
from quire.world.socket_options import DEFAULT_OPTIONS, SocketOptions
from simulation.machines.power import Power, PowerCut
from simulation.machines.trace import Trace

_LOCAL_NAMES = ("", "0.0.0.0", "127.0.0.1", "::", "::1", "localhost")
_EPHEMERAL_PORTS = 49152
_CONNECT_PATIENCE_S = 127.0
"""Time until a connection attempt into a partition fails with ETIMEDOUT."""


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


class _Pipe:
    """One direction of a connection, from `source` to `target` (host names)."""

    __slots__ = (
        "_changed",
        "broken",
        "end_at",
        "network",
        "outstanding",
        "refused_at",
        "segments",
        "source",
        "target",
        "window",
    )

    def __init__(self, network: SimNetwork, source: str, target: str, window: int) -> None:
        self.network = network
        self.source = source
        self.target = target
        self.window = window
        self.segments: deque[tuple[float, memoryview]] = deque()
        self.outstanding = 0
        """Bytes sent and not yet taken by the reader."""
        self.end_at = inf
        """Time when the reader learns that nothing follows..."""
        self.broken = False
        """...and whether it learns so by a reset."""
        self.refused_at = inf
        """Time when the writer learns that the reader has gone."""
        self._changed = trio.Event()

    @property
    def blocked(self) -> bool:
        return (self.source, self.target) in self.network.cuts

    def put(self, data: bytes) -> None:
        # After the reader has gone, sent bytes still fill the window, until the writer learns of it.
        self.outstanding += len(data)
        if self.refused_at == inf:
            arrival = trio.current_time() + self.network.latency(self.source, self.target)
            if self.segments:
                arrival = max(arrival, self.segments[-1][0])
            self.segments.append((arrival, memoryview(data)))
            self.changed()

    def end(self, *, broken: bool) -> None:
        """End the writer's side."""
        if self.end_at == inf:
            arrival = trio.current_time() + self.network.latency(self.source, self.target)
            self.end_at = max(arrival, self.segments[-1][0]) if self.segments else arrival
            self.broken = broken
            self.changed()

    def refuse(self) -> None:
        """End the reader's side: the writer learns of it with the answer to its next bytes."""
        self.segments.clear()
        self.reject()

    def reject(self) -> None:
        """Make the writer fail, after a round trip."""
        if self.refused_at == inf:
            self.refused_at = trio.current_time() + 2 * self.network.latency(self.target, self.source)
        self.changed()

    def lose_flying(self, rng: random.Random) -> None:
        """Drop a random suffix of the bytes under way; all of them, if the link is cut."""
        flying = sum(1 for arrival, _ in self.segments if arrival > trio.current_time())
        for _ in range(len(self.segments) if self.blocked else rng.randint(0, flying)):
            self.outstanding -= len(self.segments.pop()[1])

    def take(self, buffer: memoryview) -> int:
        """Move arrived bytes into `buffer`; return how many."""
        taken = 0
        now = trio.current_time()
        while self.segments and self.segments[0][0] <= now and taken < len(buffer):
            arrival, data = self.segments[0]
            size = min(len(data), len(buffer) - taken)
            buffer[taken : taken + size] = data[:size]
            taken += size
            if size == len(data):
                self.segments.popleft()
            else:
                self.segments[0] = (arrival, data[size:])
        self.outstanding -= taken
        self.changed()
        return taken

    def changed(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def wait(self, until: float) -> None:
        """Wait for a change, or until the virtual time `until`; while the link is cut, for a change only."""
        changed = self._changed
        if until == inf or self.blocked:
            await changed.wait()
            return
        with trio.CancelScope(deadline=until):
            await changed.wait()


class _SimStream:
    def __init__(self, door: HostNetwork, number: int, peer: str, incoming: _Pipe, outgoing: _Pipe) -> None:
        self._network = door.network
        self._trace = door.network.trace
        self._rng = door.network.rng
        self._power = door.power
        self._host = door.host
        self._number = number
        self._peer = peer
        self.incoming = incoming
        self.outgoing = outgoing
        self._closed = False

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def peer_certificate(self) -> bytes | None:
        return None

    async def receive_into(self, buffer: memoryview, at_least: int = 1) -> int:
        await trio.lowlevel.checkpoint()
        pipe = self.incoming
        while not self._closed:
            now = trio.current_time()
            if not pipe.blocked:
                if pipe.segments and pipe.segments[0][0] <= now:
                    # Now and then return less than has arrived, as a real receive may.
                    size = len(buffer) if self._rng.random() < 0.9 else self._rng.randint(1, len(buffer))
                    return pipe.take(buffer[:size])
                if pipe.end_at <= now:
                    if pipe.broken:
                        raise _error(errno.ECONNRESET)
                    return 0
            await pipe.wait(pipe.segments[0][0] if pipe.segments else pipe.end_at)
        self._power.check()
        return 0

    def send_nowait(self, parts: Sequence[Buffer]) -> int:
        self._check()
        pipe = self.outgoing
        data = b"".join(parts)
        room = pipe.window - pipe.outstanding
        size = min(len(data), room)
        if size > 1 and self._rng.random() < 0.05:
            size = self._rng.randint(1, size)
        if size <= 0:
            return 0
        data = data[:size]
        pipe.put(data)
        self._trace.event(self._host, "Sent", stream=self._number, bytes=size, crc=zlib.crc32(data))
        return size

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()
        pipe = self.outgoing
        self._check()
        while pipe.outstanding >= pipe.window:
            await pipe.wait(inf if self.incoming.blocked else pipe.refused_at)
            self._check()

    def _check(self) -> None:
        self._power.check()
        if self._closed:
            raise OSError(errno.EBADF, "closed on this side")
        pipe = self.outgoing
        if pipe.refused_at <= trio.current_time() and not self.incoming.blocked:
            raise _error(errno.EPIPE)

    def close(self) -> None:
        if not self._closed:
            # The same as TCP: a close with unread bytes resets the connection.
            self.shut(broken=self.incoming.outstanding > 0)

    def shut(self, *, broken: bool) -> None:
        self._closed = True
        self._network.forget(self._number, self._host)
        self.outgoing.end(broken=broken)
        self.incoming.refuse()

    def crash(self, rng: random.Random) -> None:
        """End the connection of a dead host: the peer sees an end or a reset, and may lose bytes under way."""
        self.outgoing.lose_flying(rng)
        self.shut(broken=rng.random() < 0.5)

    def reset(self) -> None:
        """Make both sides see a reset."""
        for pipe in (self.incoming, self.outgoing):
            pipe.end(broken=True)
            pipe.reject()


class _SimListener:
    def __init__(self, door: HostNetwork, port: int) -> None:
        self.door = door
        self._address = (door.host, port)
        self._backlog: deque[_SimStream] = deque()
        self._arrived = trio.Event()
        self._closed = False

    @property
    def address(self) -> tuple[str, int]:
        return self._address

    @property
    def capacity(self) -> int:
        return 0

    def arrive(self, stream: _SimStream) -> None:
        self._backlog.append(stream)
        self._wake()

    async def accept(self) -> Stream:
        await trio.lowlevel.checkpoint()
        while not self._closed:
            if self._backlog:
                return self._backlog.popleft()
            await self._arrived.wait()
        self.door.power.check()
        raise OSError(errno.EBADF, "closed on this side")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.door.network.listeners.pop(self._address, None)
            for stream in self._backlog:
                stream.shut(broken=True)
            self._backlog.clear()
            self._wake()

    def _wake(self) -> None:
        self._arrived.set()
        self._arrived = trio.Event()


class SimNetwork:
    """Network between the hosts. The nemesis cuts, heals and resets here."""

    def __init__(self, rng: random.Random, trace: Trace) -> None:
        self.rng = rng
        self.trace = trace
        self.cuts: dict[tuple[str, str], None] = {}
        """(from, to) pairs of hosts between which nothing arrives, in that direction."""
        self.lags: dict[tuple[str, str], float] = {}
        """(from, to) pairs of hosts, and the seconds that each message takes longer in that direction."""
        self.listeners: dict[tuple[str, int], _SimListener] = {}
        self._streams: dict[tuple[int, str], _SimStream] = {}
        self._numbers = 0
        self._ports = _EPHEMERAL_PORTS

    # Faults

    def cut(self, source: str, target: str) -> None:
        """Cut a link: nothing from `source` arrives at `target` until healed; it is late, not lost."""
        self.cuts[source, target] = None
        self.trace.event("", "LinkCut", source=source, target=target)

    def mend(self, source: str, target: str) -> None:
        """Undo one cut; bytes sent meanwhile arrive."""
        if self.cuts.pop((source, target), source) is None:
            self.trace.event("", "LinkMended", source=source, target=target)
            for stream in list(self._streams.values()):
                if (stream.outgoing.source, stream.outgoing.target) in ((source, target), (target, source)):
                    stream.incoming.changed()
                    stream.outgoing.changed()

    def lag(self, source: str, target: str, seconds: float) -> None:
        """Delay each message from `source` to `target` by so much from now on; 0.0 undoes it."""
        self.trace.event("", "LinkLags", source=source, target=target, seconds=seconds)
        if seconds:
            self.lags[source, target] = seconds
        else:
            self.lags.pop((source, target), None)

    def partition(self, one: Iterable[str], other: Iterable[str]) -> None:
        """Cut every link between the hosts of the two groups, both ways."""
        others = list(other)
        for a in one:
            for b in others:
                self.cut(a, b)
                self.cut(b, a)

    def heal(self) -> None:
        """Undo every cut and every lag."""
        self.cuts.clear()
        self.lags.clear()
        self.trace.event("", "NetworkHealed")
        for stream in list(self._streams.values()):
            stream.incoming.changed()
            stream.outgoing.changed()

    def reset(self, one: str, other: str) -> int:
        """Reset every connection between two hosts; returns how many."""
        streams = [s for s in self._streams.values() if (s.outgoing.source, s.outgoing.target) == (one, other)]
        for stream in streams:
            stream.reset()
        self.trace.event("", "ConnectionsReset", one=one, other=other, count=len(streams))
        return len(streams)

    def lose(self, one: str, other: str) -> int:
        """Reset every connection between two hosts, and lose some of what is under way; returns the messages lost."""
        lost = 0
        for stream in list(self._streams.values()):
            if (stream.outgoing.source, stream.outgoing.target) == (one, other):
                for pipe in (stream.incoming, stream.outgoing):
                    before = len(pipe.segments)
                    pipe.lose_flying(self.rng)
                    lost += before - len(pipe.segments)
        self.trace.event("", "MessagesLost", one=one, other=other, count=lost)
        self.reset(one, other)
        return lost

    # Used by the doors

    def latency(self, source: str, target: str) -> float:
        """Return the delay in seconds, drawn for each message."""
        if self.lags:
            return self._latency(source, target) + self.lags.get((source, target), 0.0)
        return self._latency(source, target)

    def _latency(self, source: str, target: str) -> float:
        if source == target:
            return self.rng.uniform(20e-6, 60e-6)
        if self.rng.random() < 0.01:
            return self.rng.uniform(5e-3, 50e-3)
        return self.rng.uniform(50e-6, 500e-6)

    def lose_host(self, host: str, rng: random.Random | None) -> None:
        """End all connections of `host`: by `rng` as in a crash; in order without one."""
        for listener in [listener for address, listener in self.listeners.items() if address[0] == host]:
            listener.close()
        for stream in [stream for (_, owner), stream in self._streams.items() if owner == host]:
            if rng is None:
                stream.close()
            else:
                stream.crash(rng)

    def port(self) -> int:
        self._ports += 1
        return self._ports

    def join(self, client: HostNetwork, server: HostNetwork, port: int) -> tuple[_SimStream, _SimStream]:
        window = self.rng.choice((4 << 10, 64 << 10, 64 << 10, 256 << 10))
        there = _Pipe(self, client.host, server.host, window)
        back = _Pipe(self, server.host, client.host, window)
        self._numbers += 1
        number = self._numbers
        near = _SimStream(client, number, f"{server.host}:{port}", back, there)
        # Both ends of a connection may be on one host: the far end's key is negative.
        far = _SimStream(server, -number, f"{client.host}:{self.port()}", there, back)
        self._streams[number, client.host] = near
        self._streams[-number, server.host] = far
        self.trace.event(client.host, "Connected", stream=number, to=server.host, port=port)
        return near, far

    def forget(self, number: int, host: str) -> None:
        self._streams.pop((number, host), None)


class HostNetwork:
    """The network door of one incarnation of a host."""

    def __init__(self, network: SimNetwork, host: str, power: Power) -> None:
        self.network = network
        self.host = host
        self.power = power

    async def listen(self, host: str, port: int, options: SocketOptions = DEFAULT_OPTIONS) -> Listener:
        await trio.lowlevel.checkpoint()
        self.power.check()
        if host != self.host and host not in _LOCAL_NAMES:
            raise _error(errno.EADDRNOTAVAIL)
        port = port or self.network.port()
        if (self.host, port) in self.network.listeners:
            raise _error(errno.EADDRINUSE)
        listener = _SimListener(self, port)
        self.network.listeners[self.host, port] = listener
        return listener

    async def connect(self, host: str, port: int) -> Stream:
        network = self.network
        target = self.host if host in _LOCAL_NAMES else host
        await trio.sleep(network.latency(self.host, target))
        patience = trio.current_time() + _CONNECT_PATIENCE_S
        while (self.host, target) in network.cuts or (target, self.host) in network.cuts:
            if trio.current_time() > patience:
                raise _error(errno.ETIMEDOUT)
            await trio.sleep(1.0)
        self.power.check()
        listener = network.listeners.get((target, port))
        if listener is None:
            raise _error(errno.ECONNREFUSED)
        near, far = network.join(self, listener.door, port)
        listener.arrive(far)
        try:
            await trio.sleep(network.latency(target, self.host))
            self.power.check()
        except (trio.Cancelled, PowerCut):
            near.close()
            raise
        return near

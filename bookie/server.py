"""Server of a bookie: moves frames between sockets and sessions, and keeps the bookie registered in the cluster.

Stop    registration removed; at the same time: nothing more received -> requests answered -> connections closed

Clients keep their connections open indefinitely, so a stop does not wait for idle connections: it ends when every
request is answered. In one process with its only client a bookie needs no server: a `BookieSession` handles the same
bytes.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from bookie.bookie import Bookie
from bookie.registration import stay_registered
from bookie.sessions.authentication import OfferedAuthentication, authenticate
from bookie.sessions.session import BookieSession
from bookie.sessions.start_tls import Begun, OfferedTls, begin
from quire.metadata.bookies import BookieServiceInfo, Endpoint, unregister
from quire.metadata.errors import MetadataError
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.service.neighbours.rare_lines import RareLines
from quire.service.serve import ConnectionCounts, serve_connections
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.errors import MalformedError
from quire.wire.bookkeeper.stream import FrameStream
from quire.wire.bookkeeper.v2 import LENT_MAX
from quire.world.doors import Stream, World
from quire.world.outbox import Outbox

log = get_logger(__name__)

CHUNK_SIZE: Final = 512 << 10
"""Bytes received at once, if available.

With half and with twice as much, an add of 1 KB costs 10 % more CPU: more passes, or more than fits into the CPU's
nearer caches.
"""
GRACE_S: Final = 1.0
"""Seconds to answer and send the answers when the bookie stops.

A client that gets none asks another bookie, as after a crash.
"""


async def serve_bookie(
    world: World,
    bookie: Bookie,
    metadata: MetadataStore,
    *,
    bind_address: str,
    stop: trio.Event,
    grace_s: float = GRACE_S,
    counts: ConnectionCounts | None = None,
    endpoints: Sequence[Endpoint] = (),
    properties: Sequence[tuple[str, str]] = (),
    register_wait_s: float | None = None,
    tls: OfferedTls | None = None,
    authentication: OfferedAuthentication | None = None,
    task_status: trio.TaskStatus[tuple[str, int]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `stop` is set, registered in the cluster meanwhile, with `endpoints` besides the bookie's own, and
    with `tls` for clients that ask for it. `authentication`: None: all clients are served.

    Then requests in progress are answered, for `grace_s` seconds at most. Starts with the (host, port) listened on.
    Raises what `stay_registered` raises, in a group; OSError if the port is taken.
    """
    config = bookie.config
    listener = await world.network.listen(bind_address, config.port, config.sockets)
    port = listener.address[1]
    own = Endpoint(host=config.host, port=port)
    info = BookieServiceInfo(endpoints=(own, *endpoints), properties=tuple(properties))
    drain = Drain(bookie)

    async def announce(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.CancelScope() as announced:
            nursery.start_soon(_cancel_at, stop, announced, name="bookie stop")
            await stay_registered(metadata, bookie, info, wait_s=register_wait_s, task_status=task_status)
        # Only a courtesy: the name ends with the session. If the cluster cannot be reached now, the session expires.
        with trio.move_on_after(grace_s), suppress(MetadataError):
            await unregister(metadata, config.id, root=config.ledgers_root)

    def begin_drain() -> None:
        nursery.start_soon(drain.run, grace_s, name="bookie drain")

    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(announce, name="bookie registration")
            await nursery.start(
                partial(
                    serve_connections,
                    listener,
                    partial(serve_client, bookie, drain=drain, tls=tls, authentication=authentication),
                    stop=stop,
                    grace_s=grace_s,
                    on_drain=begin_drain,
                    counts=counts,
                    name="bookie",
                ),
                name="bookie",
            )
            task_status.started((config.host, port))
    finally:
        listener.close()


async def _cancel_at(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


class Drain:
    """Orderly end of the connections of a stopping bookie."""

    def __init__(self, bookie: Bookie) -> None:
        self._bookie = bookie
        self._begun = False
        self._receiving: set[trio.CancelScope] = set()
        self._serving = 0
        """Connections that receive, or have received requests waiting for room."""
        self._answered = trio.Event()
        """Set when all received requests are answered, or the wait for that has ended."""

    async def serve(self, receive: Callable[[], Awaitable[None]], serve_rest: Callable[[], Awaitable[None]]) -> bool:
        """Receive on a connection until it ends, or until the bookie stops.

        After a stop, serve what was received, and return True when all connections are answered.
        """
        self._serving += 1
        try:
            with trio.CancelScope() as scope:
                self._receiving.add(scope)
                if self._begun:
                    scope.cancel()
                try:
                    await receive()
                finally:
                    self._receiving.discard(scope)
            if scope.cancelled_caught:
                await serve_rest()
        finally:
            self._serving -= 1
            if self._begun:
                self._look()
        if scope.cancelled_caught:
            await self._answered.wait()
        return scope.cancelled_caught

    async def run(self, grace_s: float) -> None:
        """Receive nothing more; wait, up to `grace_s`, until nothing is in progress."""
        self._begun = True
        for scope in list(self._receiving):
            scope.cancel()
        self._bookie.passes.on_end = self._look
        self._look()
        with trio.move_on_after(grace_s):
            await self._answered.wait()
        self._answered.set()

    def _look(self) -> None:
        """Check whether everything is answered. Called whenever a request or connection ends."""
        bookie = self._bookie
        under_way = self._serving or bookie.journal.queued_bytes or bookie.adds.waiting_bytes or bookie.reads_in_flight
        if not under_way:
            self._answered.set()


async def serve_client(
    bookie: Bookie,
    stream: Stream,
    *,
    drain: Drain | None = None,
    tls: OfferedTls | None = None,
    authentication: OfferedAuthentication | None = None,
) -> None:
    """Serve one connection until it ends, breaks, sends something that is not the protocol, or `drain` ends it.

    OSError.
    """
    first = b""
    if tls is not None or authentication is not None:
        begun = await _begin(stream, tls, authentication, bookie.rare_lines)
        if begun is None:
            return
        stream, first = begun
    try:
        await _serve_begun(bookie, stream, first, drain or Drain(bookie))
    finally:
        stream.close()


async def _begin(
    stream: Stream, tls: OfferedTls | None, authentication: OfferedAuthentication | None, rare_lines: RareLines
) -> Begun | None:
    """Return the connection with TLS if it asked for that, authenticated if it must be; None: it may not go on.

    OSError.
    """
    if authentication is None:
        return Begun(stream, b"") if tls is None else await begin(stream, tls)
    begun: Begun | None = Begun(stream, b"")
    with trio.move_on_after(authentication.timeout_s):
        if tls is not None:
            begun = await begin(stream, tls)
        if begun is None:
            return None
        rest = await authenticate(begun.stream, begun.received, authentication, rare_lines)
        if rest is not None:
            return Begun(begun.stream, rest)
        begun.stream.close()
        return None
    reason = f"not within {authentication.timeout_s:g} s"
    if rare_lines.admits("authentication failed", stream.peer):
        log.info("authentication failed", server="bookie", connection=stream.peer, reason=reason)
    return None


async def _serve_begun(bookie: Bookie, stream: Stream, first: bytes, drain: Drain) -> None:
    """Serve a connection of which the bytes `first` were received."""
    outbox = Outbox(stream)

    def write(parts: list[Buffer]) -> None:
        outbox.write(parts)
        outbox.flush()

    pressure = bookie.config
    session = BookieSession(bookie, write, peer=stream.peer)
    room = trio.Event()

    def has_room() -> None:
        room.set()

    session.on_room = has_room
    frames = FrameStream(bookie.config.frame_max, CHUNK_SIZE, lent_max=LENT_MAX)

    async def answers_taken() -> None:
        """Wait until the peer has taken enough of its answers; disconnect it if it is to be given up."""
        if outbox.pending_bytes <= pressure.answers_high_water:
            return
        seconds = pressure.answer_wait_ms / 1000 if pressure.answer_wait_ms >= 0 else math.inf
        with trio.move_on_after(seconds):
            await outbox.wait_below(pressure.answers_low_water or pressure.answers_high_water)
            return
        log.info("connection closed: it takes no answers", connection=stream.peer, bytes=outbox.pending_bytes)
        outbox.fail(OSError(errno.ETIMEDOUT, f"the peer has taken no answers for {seconds:g} s"))

    async def serve_waiting() -> None:
        """Serve until no request waits for room."""
        nonlocal room
        await answers_taken()
        while session.is_paused and outbox.broken is None:
            if session.has_room:
                await trio.lowlevel.checkpoint()  # others have a turn between two parts of a chunk
                session.resume()
            else:
                room = trio.Event()
                await room.wait()
            await answers_taken()

    async def receive() -> None:
        nonlocal first
        while not session.closed and outbox.broken is None:
            if first:
                size = len(first)
                frames.space()[:size] = first
                first = b""
            else:
                size = await stream.receive_into(frames.space())
            if size == 0:
                return
            with suppress(MalformedError):
                session.receive([frames.received(size)])
            if frames.error is not None:
                bookie.stats.frames += 1
                if bookie.rare_lines.admits("not the bookie protocol", stream.peer):
                    reason = str(frames.error)
                    log.info("connection closed: not the bookie protocol", connection=stream.peer, reason=reason)
                return
            await serve_waiting()

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outbox.run, name="bookie answers")
            if await drain.serve(receive, serve_waiting):
                await outbox.wait_below(0)
            nursery.cancel_scope.cancel()
    finally:
        session.close()

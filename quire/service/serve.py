"""Accepting of connections, each served in a task of its own, and their graceful end.

Two nurseries: the inner one accepts, the outer one serves. Stopping reads from the inside out:

    1. accept nothing new      the listener is closed
    2. drain                   `on_drain` tells the connections; they have `grace_s` seconds to end by themselves
    3. cut                     what is left is cancelled

Nothing here is for correctness: a server that is killed instead is an ordinary server.
"""

from __future__ import annotations

import errno
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import trio

from quire.service.log import get_logger
from quire.world.unwrap import reason_of

_EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS))
ACCEPT_PAUSE_S = 0.1
"""Pause of accepting after the machine ran out of descriptors or memory, in seconds."""
ACCEPT_QUIET_S = 3.0
"""Time without a shortage before its end is logged: a single closed connection makes room for one."""

log = get_logger(__name__)


class Accepted(Protocol):
    """Parts of a connection used here."""

    @property
    def peer(self) -> str: ...

    def close(self) -> None: ...


A = TypeVar("A", bound=Accepted)
A_co = TypeVar("A_co", bound=Accepted, covariant=True)


class Accepting(Protocol[A_co]):
    """Parts of a listener, for connections of any kind; see `quire.world.doors.Listener`."""

    @property
    def capacity(self) -> int: ...

    async def accept(self) -> A_co: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class ConnectionCounts:
    """Plain numbers, read by the metrics at scrape time."""

    opened: int = 0
    closed: int = 0
    refused: int = 0
    """Connections accepted above the limit, and closed again."""
    failed: int = 0
    """Connections ended by an unexpected exception, an internal error."""

    @property
    def active(self) -> int:
        return self.opened - self.closed


async def serve_connections(
    listener: Accepting[A],
    handle: Callable[[A], Awaitable[None]],
    *,
    stop: trio.Event,
    grace_s: float = 10.0,
    connections_max: int = 0,
    connections_per_address_max: int = 0,
    refuse: Callable[[A], None] | None = None,
    on_drain: Callable[[], None] | None = None,
    counts: ConnectionCounts | None = None,
    name: str = "server",
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `stop` is set and the connections have ended, or `grace_s` seconds have passed since.

    `handle` serves one connection; when it returns or fails the stream is closed. With `connections_max` (0: no limit)
    connections served at once, or as many as the listener has room for, the next one is given to `refuse`, which may
    send a last message without waiting, and closed. So is one above `connections_per_address_max` (0: no limit) of one
    address, whatever its ports. Where the machine has no descriptors left, new connections wait for
    them. Each of the two is one line in the log when it begins, and one when it ends."""
    limit = min(filter(None, (connections_max, listener.capacity)), default=0)
    if limit < connections_max:
        remedy = "raise the limit of open files (ulimit -n, LimitNOFILE)"
        log.warning(
            "fewer connections than configured", server=name, configured=connections_max, served=limit, remedy=remedy
        )
    counts = counts if counts is not None else ConnectionCounts()
    of_address: Counter[str] = Counter()
    """Connections by address, as long as there is a limit."""

    async def serve_one(stream: A) -> None:
        try:
            await handle(stream)
        except* OSError as errors:
            # A group, because the handler's nursery may contain the error that broke the connection.
            log.debug("connection broken", server=name, connection=stream.peer, reason=reason_of(errors))
        except* Exception:
            counts.failed += 1
            log.exception("connection failed", server=name, connection=stream.peer)
        finally:
            stream.close()
            counts.closed += 1
            if connections_per_address_max:
                address = address_of(stream.peer)
                of_address[address] -= 1
                if not of_address[address]:
                    del of_address[address]

    async def accept(connections: trio.Nursery) -> None:
        full = False
        well_at = math.inf
        """Time at which the end of the shortage may be logged; inf: no shortage was logged."""
        refused_before = 0
        while True:
            stream: A | None = None
            try:
                with trio.CancelScope(deadline=well_at):
                    stream = await listener.accept()
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                if well_at == math.inf:
                    log.warning("accepting no connections until descriptors are free", server=name, reason=str(error))
                well_at = trio.current_time() + ACCEPT_PAUSE_S + ACCEPT_QUIET_S
                await trio.sleep(ACCEPT_PAUSE_S)
                continue
            if trio.current_time() >= well_at:
                well_at = math.inf
                log.info("accepting connections again", server=name)
            if stream is None:
                continue
            if limit and counts.active >= limit:
                if not full:
                    full, refused_before = True, counts.refused
                    log.warning("connections refused, limit reached", server=name, connection=stream.peer, limit=limit)
                counts.refused += 1
                _send_off(stream, refuse)
                continue
            if connections_per_address_max:
                address = address_of(stream.peer)
                if of_address[address] >= connections_per_address_max:
                    counts.refused += 1
                    log.debug("connection refused, limit of its address reached", server=name, connection=stream.peer)
                    _send_off(stream, refuse)
                    continue
                of_address[address] += 1
            if full and counts.active <= limit - max(1, limit // 20):
                full = False
                log.info("connections below the limit again", server=name, refused=counts.refused - refused_before)
            counts.opened += 1
            connections.start_soon(serve_one, stream, name=f"{name} {stream.peer}")

    try:
        async with trio.open_nursery() as connections:
            async with trio.open_nursery() as acceptors:
                acceptors.start_soon(accept, connections, name=f"{name} accept")
                task_status.started()
                await stop.wait()
                acceptors.cancel_scope.cancel()
            listener.close()
            if on_drain is not None:
                on_drain()
            connections.cancel_scope.deadline = trio.current_time() + grace_s
    finally:
        listener.close()


def address_of(peer: str) -> str:
    """Return the address of a peer without its port.

    >>> address_of("::1:6650")
    '::1'
    """
    return peer.rpartition(":")[0]


def _send_off(stream: A, refuse: Callable[[A], None] | None) -> None:
    try:
        if refuse is not None:
            refuse(stream)
    except OSError:
        pass  # closed already, which is the goal
    finally:
        stream.close()

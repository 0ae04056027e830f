"""A bookie on a port: frames from sockets to sessions and back, and the bookie's name in the cluster.

In one process with its only client a bookie needs none of this: `Bookie.session` speaks the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from bookie.bookie import Bookie
from bookie.registration import stay_registered
from quire.metadata.bookies import BookieServiceInfo, Endpoint, unregister
from quire.metadata.errors import MetadataError
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.service.serve import ConnectionCounts, serve_connections
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.errors import MalformedError
from quire.wire.bookkeeper.stream import FrameStream
from quire.world.doors import Stream, World
from quire.world.outbox import Outbox

log = get_logger(__name__)

ANSWERS_WAITING_MAX: Final = 4 << 20
"""Bytes of answers a peer may leave lying before its next requests are read."""


async def serve_bookie(
    world: World,
    bookie: Bookie,
    metadata: MetadataStore,
    *,
    bind_address: str,
    stop: trio.Event,
    grace_s: float = 5.0,
    counts: ConnectionCounts | None = None,
    endpoints: Sequence[Endpoint] = (),
    properties: Sequence[tuple[str, str]] = (),
    register_wait_s: float | None = None,
    task_status: trio.TaskStatus[tuple[str, int]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `stop` is set, announced in the cluster meanwhile, with `endpoints` beside the bookie's own. Starts with
    the (host, port) listened on. Raises what `stay_registered` does, in a group; OSError if the port is taken."""
    config = bookie.config
    listener = await world.network.listen(bind_address, config.port)
    port = listener.address[1]
    own = Endpoint(host=config.host, port=port)
    info = BookieServiceInfo(endpoints=(own, *endpoints), properties=tuple(properties))
    try:
        async with trio.open_nursery() as registering:
            register = partial(stay_registered, metadata, bookie, info, wait_s=register_wait_s)
            await registering.start(register, name="bookie registration")
            async with trio.open_nursery() as nursery:
                await nursery.start(
                    partial(
                        serve_connections,
                        listener,
                        partial(serve_client, bookie),
                        stop=stop,
                        grace_s=grace_s,
                        counts=counts,
                        name="bookie",
                    ),
                    name="bookie",
                )
                task_status.started((config.host, port))
            registering.cancel_scope.cancel()
        # A kindness: the name would go with the session. If the cluster cannot be told now, it will notice.
        with trio.move_on_after(grace_s), suppress(MetadataError):
            await unregister(metadata, config.id, root=config.ledgers_root)
    finally:
        listener.close()


async def serve_client(bookie: Bookie, stream: Stream) -> None:
    """Serve one connection until it ends, breaks, or sends what is not the protocol. OSError."""
    outbox = Outbox(stream)

    def write(parts: list[Buffer]) -> None:
        outbox.write(parts)
        outbox.flush()

    session = bookie.session(write)
    room = trio.Event()

    def has_room() -> None:
        room.set()

    session.on_room = has_room
    frames = FrameStream(bookie.config.frame_max)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outbox.run, name="bookie answers")
            while not session.closed and outbox.broken is None:
                size = await stream.receive_into(frames.space())
                if size == 0:
                    break
                with suppress(MalformedError):
                    session.receive([frames.received(size)])
                if frames.error is not None:
                    log.info("connection closed: not the bookie protocol", peer=stream.peer, reason=str(frames.error))
                    break
                await outbox.wait_below(ANSWERS_WAITING_MAX)
                while session.is_paused and outbox.broken is None:
                    if session.has_room:
                        session.resume()
                    else:
                        room = trio.Event()
                        await room.wait()
                    await outbox.wait_below(ANSWERS_WAITING_MAX)
            nursery.cancel_scope.cancel()
    finally:
        session.close()

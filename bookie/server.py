"""A bookie on a port: frames from sockets to sessions and back, and the bookie's name in the cluster.

In one process with its only client a bookie needs none of this: `Bookie.session` speaks the same bytes.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Final

import trio

from bookie.bookie import Bookie
from quire.metadata.bookies import BookieServiceInfo, Endpoint, register, unregister
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
    task_status: trio.TaskStatus[tuple[str, int]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `stop` is set, announced in the cluster meanwhile. Starts with the (host, port) listened on."""
    config = bookie.config
    listener = await world.network.listen(bind_address, config.port)
    port = listener.address[1]
    info = BookieServiceInfo(endpoints=(Endpoint(host=config.host, port=port),))
    try:
        await register(metadata, config.id, info, root=config.ledgers_root)
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
    frames = FrameStream()
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
            nursery.cancel_scope.cancel()
    finally:
        session.close()

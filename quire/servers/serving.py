"""Common serving parts of server processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from broker.server import Broker
from quire.service.serve import ConnectionCounts, serve_connections
from quire.world.doors import Listener


def broker_port(
    listener: Listener,
    broker: Broker,
    counts: ConnectionCounts,
    *,
    grace_s: float,
    connections_max: int,
    connections_per_address_max: int,
    stop: trio.Event,
) -> Callable[..., Awaitable[None]]:
    """Serve the broker's clients until `stop` is set, and then connected ones for at most `grace_s`. Start it in a
    nursery."""
    return partial(
        serve_connections,
        listener,
        broker.handle,
        stop=stop,
        grace_s=grace_s,
        connections_max=connections_max,
        connections_per_address_max=connections_per_address_max,
        refuse=broker.refuse,
        on_drain=broker.begin_close,
        counts=counts,
        name="broker",
    )

"""What the processes of servers have in common while they serve."""

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
    stop: trio.Event,
) -> Callable[..., Awaitable[None]]:
    """To be started: serves the broker's clients until `stop` is set, and then those that are there for `grace_s` at most."""
    return partial(
        serve_connections,
        listener,
        broker.handle,
        stop=stop,
        grace_s=grace_s,
        connections_max=connections_max,
        refuse=broker.refuse,
        on_drain=broker.begin_close,
        counts=counts,
        name="broker",
    )

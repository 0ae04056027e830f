"""Probe of the peer of a connection: does it still answer?"""

from __future__ import annotations

from typing import Protocol

import trio

from broker.context import Context

_LOOK_S = 0.02


class Probed(Protocol):
    """Connection as used here."""

    context: Context
    closed: bool
    pinged: bool

    def ping(self) -> None:
        """Ask for a sign of life."""

    @property
    def is_deaf(self) -> bool:
        """Return whether this side does not read."""

    def abort(self, why: str) -> None:
        """End the connection."""


async def is_alive(connection: Probed) -> bool:
    """Return whether the peer gives a sign of life in time. A dead one is aborted."""
    if connection.closed:
        return False
    connection.pinged = True
    connection.ping()
    connection.context.turn.flush()
    deadline = trio.current_time() + connection.context.options.liveness_probe_timeout_s
    while trio.current_time() < deadline:
        await trio.sleep(_LOOK_S)
        if connection.closed:
            return False
        if not connection.pinged or connection.is_deaf:
            return True
    connection.abort("no answer to a liveness probe")
    return False

"""Bounds of a connection, and the error of a peer that breaks the protocol."""

from __future__ import annotations

CLOSED_PRODUCERS_MAX = 10_000
"""Producers closed on one connection that are remembered. A SEND of one closed earlier closes the connection."""
WORK_PER_STEP = 512
"""Message ids of ACK and REDELIVER, over all commands, that a connection handles before other tasks run: 1 to 5 ms, the
most for parts of batches."""
WORK_PER_COMMAND = 8
"""Cost of a command in that budget, beside its message ids."""
CONNECT_FRAME_MAX = 192 << 10
"""Maximum bytes of a frame before the client has proven its role: two credentials of 64 KiB, and more than the rest."""


class ProtocolError(Exception):
    """Violation of the protocol by the peer. The connection is closed and one log line gives the reason."""

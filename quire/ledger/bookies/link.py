"""BookieLink: one way to one bookie, in frames of the bookie protocol. Everything above it is the same in process and over TCP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from quire.ledger.errors import BookieUnavailableError
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Buffer
from quire.world.outbox import Outbox

Receive: TypeAlias = Callable[[Buffer], None]
Closed: TypeAlias = Callable[[BookieUnavailableError], None]


class Turn(Protocol):
    """A pass of the event loop, at whose end what it wants to send leaves. Of whoever has connections beside the links."""

    working: bool
    """A pass is under way that calls `flush` at its end."""

    def mark(self, outbox: Outbox) -> None:
        """`outbox` has something to send at the end of this pass, or soon if none is under way."""

    def flush(self) -> None:
        """End of a pass: send what is marked."""


class BookieLink(Protocol):
    """Made unconnected if need be: frames sent meanwhile are kept, within a bound, and sent when it is up.

    `send` neither waits nor raises. A link that breaks, or whose bookie takes too little of what was sent, calls `closed`
    once, perhaps from within `send`; frames sent after that are dropped. Answers may come from within `send` too.
    """

    closed: Closed
    """Called once when the link is broken; not after `close`."""

    def set_receiver(self, receive: Receive) -> None:
        """Say who gets what the bookie sends: buffers of whole frames, in order, of whatever version was spoken to it.
        `receive` must not raise. Before the first `send`."""

    def send(self, frames: Sequence[v2.Frame]) -> None:
        """Send whole frames, in order. The buffers must not change afterwards."""

    def close(self) -> None:
        """Give the link up; safe twice."""


def ignore_closed(error: BookieUnavailableError) -> None:
    """What a link calls until somebody sets `closed`."""

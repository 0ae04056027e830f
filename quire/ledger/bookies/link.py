"""BookieLink: a transport for frames of the bookie protocol to one bookie.

All layers above are the same in process and over TCP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from quire.ledger.errors import BookieUnavailableError
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Buffer

Receive: TypeAlias = Callable[[Buffer], None]
Closed: TypeAlias = Callable[[BookieUnavailableError], None]


class BookieLink(Protocol):
    """Link to one bookie.

    It may begin unconnected: frames sent meanwhile are kept, within a bound, and sent when it is connected.

    `send` neither waits nor raises. A link that breaks, or whose bookie receives too little of the sent data, calls
    `closed` once, perhaps from within `send`; frames sent after that are dropped. Answers may come from within `send`
    too.
    """

    closed: Closed
    """Called once when the link is broken; not after `close`."""

    def set_receiver(self, receive: Receive) -> None:
        """Set the function that receives the bookie's data, before the first `send`. It must not raise.

        It gets buffers of whole frames, in order, of the protocol version that was used.
        """

    def send(self, frames: Sequence[v2.Frame]) -> None:
        """Send whole frames, in order. The buffers must not change afterwards."""

    def close(self) -> None:
        """Close the link; no effect the second time."""


def ignore_closed(error: BookieUnavailableError) -> None:
    """Default value of `closed`: does nothing."""

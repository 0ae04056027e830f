"""A link to a bookie in the same process: the same bytes, without a socket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from quire.ledger.bookies.link import Closed, Receive, ignore_closed
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Buffer
from quire.world.outbox import Turn

Write: TypeAlias = Callable[[list[Buffer]], None]


class LocalSession(Protocol):
    """The part of a bookie's session that a link uses."""

    def receive(self, frames: Sequence[v2.Frame]) -> None: ...

    def close(self) -> None: ...


class LocalLink:
    """Link to a bookie in the same process. Answers may come from within `send`."""

    def __init__(self, session_factory: Callable[[Write], LocalSession], *, turn: Turn | None = None) -> None:
        """`turn`: the pass at whose end output caused by answers leaves, in one write per connection."""
        self._turn = turn
        self.closed: Closed = ignore_closed
        self._receive: Receive | None = None
        self._open = True
        self._session = session_factory(self._answered)

    def set_receiver(self, receive: Receive) -> None:
        self._receive = receive

    def send(self, frames: Sequence[v2.Frame]) -> None:
        if self._open:
            self._session.receive(frames)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._session.close()

    def _answered(self, parts: list[Buffer]) -> None:
        """Receive data from the session: whole frames, in any number of parts."""
        if not self._open:
            return
        assert self._receive is not None, "set_receiver comes before send"
        chunk = parts[0] if len(parts) == 1 else b"".join(parts)
        turn = self._turn
        if turn is None or turn.working:
            self._receive(chunk)
        else:
            turn.working = True
            self._receive(chunk)
            turn.flush()

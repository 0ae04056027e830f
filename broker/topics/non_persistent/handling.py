"""Messages of non-persistent topics that wait for their turn: what one pass of the event loop does not get done.

A run of messages is given to each subscription of its topic. With few of them that is done at once, in the pass in
which it was received. With thousands it takes several steps of the loop; what is received meanwhile waits, in order.
Messages of a connection above maxConcurrentNonPersistentMessagePerConnection do not wait: they are dropped.

Source: Pulsar's ServerCnx.handleSend (nonPersistentPendingMessages).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from quire.world.outbox import Turn

_DONE = object()


class Handling:
    """Work on the non-persistent messages of one broker. It is done in the order in which it came."""

    def __init__(self, turn: Turn, pending_max: int) -> None:
        self._turn = turn
        self._pending_max = pending_max
        self._waiting: deque[tuple[object, int, Iterator[None]]] = deque()
        self._pending: dict[object, int] = {}
        """Messages by connection."""

    def room(self, connection: object) -> int | None:
        """Return how many messages of a connection may wait; None: they need not."""
        if not self._waiting and self._turn.left > 0:
            return None
        return max(0, self._pending_max - self._pending.get(connection, 0))

    def start(self, connection: object, count: int, work: Iterator[None]) -> None:
        """Do the work on `count` messages, now and in later steps of the event loop as far as needed: one element of
        `work` after the other."""
        if not self._waiting and self._done(work):
            return
        self._pending[connection] = self._pending.get(connection, 0) + count
        self._waiting.append((connection, count, work))
        if len(self._waiting) == 1:
            self._turn.later(self._go_on)

    def _done(self, work: Iterator[None]) -> bool:
        while self._turn.left > 0:
            if next(work, _DONE) is _DONE:
                return True
        return False

    def _go_on(self) -> None:
        while self._waiting and self._turn.left > 0:
            connection, count, work = self._waiting[0]
            if self._done(work):
                self._waiting.popleft()
                left = self._pending[connection] - count
                if left:
                    self._pending[connection] = left
                else:
                    del self._pending[connection]
        if self._waiting:
            self._turn.later(self._go_on)

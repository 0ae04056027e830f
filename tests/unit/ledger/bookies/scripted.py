"""A link whose answers the test determines."""

from __future__ import annotations

from collections.abc import Sequence

from quire.ledger.bookies.link import Closed, Receive, ignore_closed
from quire.ledger.bookies.pool import AddChannel
from quire.ledger.errors import BookieUnavailableError
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Buffer


class ScriptedLink:
    """Records the sent frames; the test sends the answers."""

    def __init__(self) -> None:
        self.closed: Closed = ignore_closed
        self.receive: Receive | None = None
        self.sent: list[v2.Frame] = []
        self.is_open = True

    def set_receiver(self, receive: Receive) -> None:
        self.receive = receive

    def send(self, frames: Sequence[v2.Frame]) -> None:
        self.sent += frames

    def close(self) -> None:
        self.is_open = False

    def answer(self, *parts: Buffer) -> None:
        assert self.receive is not None
        self.receive(b"".join(parts))

    def requests(self) -> list[v2.Request]:
        requests = [request for frame in self.sent for request in v2.decode_requests(frame)]
        self.sent.clear()
        return requests


class Receiver:
    def __init__(self) -> None:
        self.answers: list[tuple[int, int, int]] = []
        self.lost: list[BookieUnavailableError] = []

    def adds_answered(self, channel: AddChannel, rc: int, first: int, last: int) -> None:
        self.answers.append((rc, first, last))

    def bookie_lost(self, channel: AddChannel, error: BookieUnavailableError) -> None:
        self.lost.append(error)

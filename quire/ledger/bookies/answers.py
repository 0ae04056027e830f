"""Pending answers of bookies to requests other than adds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import trio

from quire.ledger.errors import BookieUnavailableError
from quire.wire.bookkeeper import v2, v3

Body: TypeAlias = (
    v2.ReadResponse
    | v2.BatchResponse
    | v2.OtherResponse
    | v3.LacAnswer
    | v3.Done
    | v3.BookieInfo
    | v3.EntryList
    | v3.AuthAnswer
)
"""Response body.

Each has `rc`, a code of version 2 whatever the protocol version. v2.OtherResponse: a refusal that has only the code.
"""


class Answer:
    """Pending answer of a bookie to one request."""

    __slots__ = ("frame", "notify", "outcome", "queued", "tick")

    def __init__(self, tick: int) -> None:
        self.tick = tick
        """When the request was made, on the client's wheel."""
        self.frame = b""
        self.queued: list[Answer] | None = None
        """Requests for the same entry that wait until this one is answered."""
        self.outcome: Body | BookieUnavailableError | None = None
        """Response, whatever its code, or the reason why there is none; None until then."""
        self.notify: Callable[[], None] | None = None

    def settle(self, outcome: Body | BookieUnavailableError) -> None:
        """Set the outcome; only the first one counts."""
        if self.outcome is None:
            self.outcome = outcome
            if self.notify is not None:
                self.notify()

    async def wait(self) -> Body:
        """Wait for the response, whatever its code. The wait may be cancelled.

        Raises: BookieUnavailableError, BookieTimeoutError.
        """
        if self.outcome is None:
            came = trio.Event()
            self.notify = came.set
            await came.wait()
        if isinstance(self.outcome, BookieUnavailableError):
            raise self.outcome
        assert self.outcome is not None
        return self.outcome


def failed(error: BookieUnavailableError) -> Answer:
    """Return the answer to a request that could not even be sent."""
    answer = Answer(0)
    answer.settle(error)
    return answer

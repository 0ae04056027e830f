"""Pending requests to ZooKeeper: a bounded number in flight, the rest queued, and their handling when the connection is
lost.

Requests are sent in order, also across a lost connection. The exception are requests that kazoo reports as lost with
it: it is unknown whether the server executed them, and their callers decide. The same applies to a request whose answer
kazoo cannot read while the connection stays. Requests given to kazoo between the loss and its report are sent on the
next connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import trio
from kazoo.exceptions import ConnectionLoss, KazooException

from quire.metadata.errors import MetadataError, MetadataUnavailableError


class LostError(MetadataUnavailableError):
    """The connection was lost before the answer arrived. Callers of the store see it as a MetadataUnavailableError."""

    def __init__(self, message: str, call: Call) -> None:
        super().__init__(message)
        self.session, self.zxid = call.session, call.zxid


class Sender(Protocol):
    """The part of `threads.Link` used here."""

    @property
    def last_zxid(self) -> int: ...

    def send(self, request: Any, answer: Any, /) -> None: ...

    def post(self, func: Callable[..., None], /, *args: Any) -> None: ...


class Call:
    """One request and its answer. kazoo calls `set` and `set_exception` in its thread; everything else runs on the
    loop.
    """

    __slots__ = (
        "_calls",
        "_wake",
        "abandoned",
        "error",
        "folders",
        "nobodys",
        "on_done",
        "request",
        "session",
        "settled",
        "value",
        "zxid",
    )

    def __init__(
        self,
        calls: Calls,
        request: Any,
        on_done: Callable[[Call], None] | None,
        nobodys: bool,
        folders: tuple[str, ...],
    ) -> None:
        self._calls = calls
        self.request = request
        self.on_done = on_done
        """Called when it is settled, before any later answer is handled."""
        self.nobodys = nobodys
        """True if no caller waits for it, and it need not be sent again on another connection."""
        self.folders = folders
        """Folders in which it creates ephemeral sequential nodes, whose names only the answer has."""
        self._wake: trio.Event | None = None
        self.settled = False
        self.abandoned = False
        """True if no caller waits for the answer any more."""
        self.value: Any = None
        self.error: Exception | None = None
        self.session = 0
        """Session in which it was sent."""
        self.zxid = 0
        """Newest transaction known when it was sent."""

    def set(self, value: Any) -> None:
        calls = self._calls
        calls.sender.post(calls.answered, self, value, None)

    def set_exception(self, error: Exception) -> None:
        calls = self._calls
        calls.sender.post(calls.answered, self, None, error)

    def settle(self, value: Any, error: Exception | None) -> None:
        self.settled, self.value, self.error = True, value, error
        if self.on_done is not None:
            self.on_done(self)
        if self._wake is not None:
            self._wake.set()

    async def answer(self) -> Any:
        """Wait for the answer; raise the error received instead. If the wait is cancelled the call is abandoned."""
        if not self.settled:
            self._wake = trio.Event()
            try:
                await self._wake.wait()
            except trio.Cancelled:
                self.abandoned = True
                raise
        else:
            await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        return self.value


class Calls:
    """Queue of calls. `late` is called for a call that completed after its caller had gone, or was lost."""

    def __init__(self, sender: Sender, *, in_flight_max: int, waiting_max: int, late: Callable[[Call], None]) -> None:
        self.sender = sender
        self._in_flight_max = in_flight_max
        self._waiting_max = waiting_max
        self._late = late
        self._in_flight: dict[Call, None] = {}
        self._waiting: deque[Call] = deque()
        self._session = 0
        """0 while there is no connection."""
        self._ended: Callable[[], MetadataError] | None = None

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def ask(
        self,
        request: Any,
        on_done: Callable[[Call], None] | None = None,
        *,
        nobodys: bool = False,
        folders: tuple[str, ...] = (),
    ) -> Call:
        """Send the request, or queue it. MetadataUnavailableError if the queue is full; the error of `end` after it.

        Requests without a caller are always queued: the store's own work bounds them.
        """
        if self._ended is not None:
            raise self._ended()
        call = Call(self, request, on_done, nobodys, folders)
        if self._session and not self._waiting and len(self._in_flight) < self._in_flight_max:
            self._send(call)
        elif not nobodys and len(self._waiting) >= self._waiting_max:
            self._waiting = deque(call for call in self._waiting if not call.abandoned)
            if len(self._waiting) >= self._waiting_max:
                raise MetadataUnavailableError(f"{len(self._waiting)} requests are already waiting for ZooKeeper")
            self._waiting.append(call)
        else:
            self._waiting.append(call)
        return call

    def connected(self, session: int) -> None:
        """Send again, from the head of the queue."""
        self._session = session
        self._pump()

    def ahead(self) -> deque[Call]:
        """Remove the queue, so that requests made until `behind` go before it."""
        line, self._waiting = self._waiting, deque()
        return line

    def behind(self, line: deque[Call]) -> None:
        self._waiting.extend(line)

    def disconnected(self) -> None:
        """Send nothing for now. kazoo reports each lost call."""
        self._session = 0
        self._waiting = deque(call for call in self._waiting if not call.nobodys)

    def session_expired(self) -> None:
        """Fail all requests in flight: kazoo forgets them at that moment."""
        self.disconnected()
        lost = list(self._in_flight)
        self._in_flight.clear()
        for call in lost:
            self._lose(call, "the session has expired")

    def end(self, error: Callable[[], MetadataError]) -> None:
        """Fail all requests with `error()`: there will be no answers any more."""
        self._ended = error
        self._session = 0
        calls = [*self._in_flight, *self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        for call in calls:
            call.settle(None, error())

    def answered(self, call: Call, value: Any, error: Exception | None) -> None:
        if call not in self._in_flight:
            return  # lost before, or kazoo's second report of it
        del self._in_flight[call]
        if isinstance(error, ConnectionLoss):
            self._lose(call, "the connection to ZooKeeper was lost")
            return
        if error is not None and not isinstance(error, KazooException):
            self._late(call)  # it may have been executed
            error = MetadataUnavailableError(f"cannot understand ZooKeeper's answer: {error!r}")
        call.settle(value, error)
        if call.abandoned:
            self._late(call)
        self._pump()

    def _lose(self, call: Call, why: str) -> None:
        self._late(call)
        call.settle(None, LostError(why, call))

    def _pump(self) -> None:
        while self._waiting and self._session and len(self._in_flight) < self._in_flight_max:
            call = self._waiting.popleft()
            if not call.abandoned:
                self._send(call)

    def _send(self, call: Call) -> None:
        self._in_flight[call] = None
        call.session = self._session
        call.zxid = self.sender.last_zxid
        self.sender.send(call.request, call)

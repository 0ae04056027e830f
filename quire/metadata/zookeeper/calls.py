"""Requests on their way to ZooKeeper: a bounded number in flight, the rest in line; what becomes of them when the
connection goes.

Requests are sent in the order in which they were made, also across a lost connection, but for those that kazoo tells it
has lost with it: whether the server did them is not known, and their askers decide. The same holds for one whose answer
kazoo cannot read, in a connection that stays. What is given to kazoo after that and before we hear of it, it sends with the
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
    """The connection went before the answer came. To the store's callers a MetadataUnavailableError like any other."""

    def __init__(self, message: str, call: Call) -> None:
        super().__init__(message)
        self.session, self.zxid = call.session, call.zxid


class Sender(Protocol):
    """What is used of `zookeeper_threads.Link`."""

    @property
    def last_zxid(self) -> int: ...

    def send(self, request: Any, answer: Any, /) -> None: ...

    def post(self, func: Callable[..., None], /, *args: Any) -> None: ...


class Call:
    """One request and its answer. `set` and `set_exception` are kazoo's to call, in its thread; the rest is the loop's."""

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
        """Called when it is settled, before anything that came later is."""
        self.nobodys = nobodys
        """Nobody waits for it, and it is not worth sending in another connection."""
        self.folders = folders
        """Where it makes ephemeral sequential nodes, whose names only the answer tells."""
        self._wake: trio.Event | None = None
        self.settled = False
        self.abandoned = False
        """Nobody waits for the answer any more."""
        self.value: Any = None
        self.error: Exception | None = None
        self.session = 0
        """The session it was sent in."""
        self.zxid = 0
        """The newest transaction heard of when it was sent."""

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
        """Wait for it; raises what came instead. If the waiting is cancelled the call is abandoned."""
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
    """`late` hears of a call that was done after its asker had gone, and of one lost on the way."""

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
        """Send it, or put it in line. MetadataUnavailableError if the line is full, but for those that are nobody's,
        which the store's own work bounds; the error of `end` after it."""
        if self._ended is not None:
            raise self._ended()
        call = Call(self, request, on_done, nobodys, folders)
        if self._session and not self._waiting and len(self._in_flight) < self._in_flight_max:
            self._send(call)
        elif not nobodys and len(self._waiting) >= self._waiting_max:
            self._waiting = deque(call for call in self._waiting if not call.abandoned)
            if len(self._waiting) >= self._waiting_max:
                raise MetadataUnavailableError(f"{len(self._waiting)} requests wait for ZooKeeper already")
            self._waiting.append(call)
        else:
            self._waiting.append(call)
        return call

    def connected(self, session: int) -> None:
        """Send again, from the head of the line."""
        self._session = session
        self._pump()

    def ahead(self) -> deque[Call]:
        """Take the line away, for what is asked until `behind` to come before it."""
        line, self._waiting = self._waiting, deque()
        return line

    def behind(self, line: deque[Call]) -> None:
        self._waiting.extend(line)

    def disconnected(self) -> None:
        """Send nothing for now. What kazoo has lost it tells call by call."""
        self._session = 0
        self._waiting = deque(call for call in self._waiting if not call.nobodys)

    def session_expired(self) -> None:
        """All that is in flight is lost: kazoo forgets what it was given in that moment."""
        self.disconnected()
        lost = list(self._in_flight)
        self._in_flight.clear()
        for call in lost:
            self._lose(call, "the session has expired")

    def end(self, error: Callable[[], MetadataError]) -> None:
        """There will be no answers any more, but an `error()` each."""
        self._ended = error
        self._session = 0
        calls = [*self._in_flight, *self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        for call in calls:
            call.settle(None, error())

    def answered(self, call: Call, value: Any, error: Exception | None) -> None:
        if call not in self._in_flight:
            return  # lost before, or the second word of kazoo on it
        del self._in_flight[call]
        if isinstance(error, ConnectionLoss):
            self._lose(call, "the connection to ZooKeeper was lost")
            return
        if error is not None and not isinstance(error, KazooException):
            self._late(call)  # it may have been done
            error = MetadataUnavailableError(f"ZooKeeper's answer is not understood: {error!r}")
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

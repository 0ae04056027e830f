"""Connections to bookies: who gets which answer. No task, timeout scope or object per added entry.

Version 2 of the protocol matches answers by (ledger, entry, operation), so two requests for the same must never be under way on
one link:
- adds: one channel per ledger and link. A second writer of the same ledger (a recovery beside a writer that lives on) gets
  a link of its own, and so does one that comes while answers to a former writer are still outstanding.
- reads: a second read of the same entry waits until the first is answered. One that was given up keeps its place until its
  answer comes, or until the link is given up for not answering.
- batch reads carry an id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import trio

from quire.ledger.deadlines import DeadlineWheel
from quire.ledger.errors import BookieProtocolError, BookieTimeoutError, BookieUnavailableError
from quire.ledger.link import BookieLink
from quire.wire.bookkeeper import v2

Body: TypeAlias = v2.ReadResponse | v2.BatchResponse | v2.OtherResponse

GIVE_UP_AFTER = 3
"""A link with a request that is this many read timeouts old is closed."""


class AddReceiver(Protocol):
    """A writer, seen from its channels. Calls may come from within `AddChannel.send`; they must not raise."""

    def adds_answered(self, channel: AddChannel, rc: int, first: int, last: int) -> None:
        """The bookie answered `rc` to the adds of entries `first` to `last`, inclusive."""

    def bookie_lost(self, channel: AddChannel, error: BookieUnavailableError) -> None:
        """The link is broken; what was sent and not answered may or may not be stored."""


class AddChannel:
    """The adds of one ledger on one link."""

    __slots__ = ("_connection", "_ledger_id", "bookie_id", "index", "outstanding", "receiver")

    def __init__(self, connection: BookieConnection, ledger_id: int, receiver: AddReceiver, index: int) -> None:
        self._connection = connection
        self._ledger_id = ledger_id
        self.bookie_id = connection.bookie_id
        self.receiver: AddReceiver | None = receiver
        self.index = index
        """The bookie's place in the writer's ensemble."""
        self.outstanding = 0
        """Adds sent and not answered."""

    def send(self, frames: Sequence[v2.Frame], count: int) -> None:
        """Send frames that hold `count` adds of the channel's ledger."""
        self.outstanding += count
        self._connection.send(frames)

    def release(self) -> None:
        """The writer is not interested any more."""
        self.receiver = None
        if self.outstanding <= 0:
            self._connection.forget(self._ledger_id)


class Answer:
    """What a bookie will say to one read request."""

    __slots__ = ("frame", "notify", "outcome", "queued", "tick")

    def __init__(self, tick: int) -> None:
        self.tick = tick
        """When the request was made, on the client's wheel."""
        self.frame = b""
        self.queued: list[Answer] | None = None
        """Requests for the same that wait until this one is answered."""
        self.outcome: Body | BookieUnavailableError | None = None
        """The response, whatever its code, or why there is none; None until then."""
        self.notify: Callable[[], None] | None = None

    def settle(self, outcome: Body | BookieUnavailableError) -> None:
        """The first outcome counts."""
        if self.outcome is None:
            self.outcome = outcome
            if self.notify is not None:
                self.notify()

    async def wait(self) -> Body:
        """The response, whatever its code; BookieUnavailableError, BookieTimeoutError. Giving up is fine."""
        if self.outcome is None:
            came = trio.Event()
            self.notify = came.set
            await came.wait()
        if isinstance(self.outcome, BookieUnavailableError):
            raise self.outcome
        assert self.outcome is not None
        return self.outcome


async def take_answers(answers: Sequence[Answer], take: Callable[[int, Body | BookieUnavailableError], bool]) -> None:
    """Hand the outcomes to `take(place, outcome)` as they come in, until it returns True or all are in."""
    waiting = dict(enumerate(answers))
    while waiting:
        came = trio.Event()
        for place, answer in list(waiting.items()):
            if answer.outcome is None:
                answer.notify = came.set
                continue
            del waiting[place]
            came.set()
            if take(place, answer.outcome):
                return
        await came.wait()


class BookieConnection:
    """One link, with its channels and its reads under way."""

    def __init__(self, bookie_id: str, link: BookieLink, wheel: DeadlineWheel, read_timeout_s: float) -> None:
        self.bookie_id = bookie_id
        self.channels: dict[int, AddChannel] = {}
        self.broken: BookieUnavailableError | None = None
        self._link = link
        self._wheel = wheel
        self._timeout_ticks = wheel.ticks(read_timeout_s)
        self._reads: dict[tuple[int, int], Answer] = {}
        self._batches: dict[int, Answer] = {}
        self._next_request_id = 0
        link.closed = self._closed
        link.set_receiver(self._received)

    def send(self, frames: Sequence[v2.Frame]) -> None:
        """Send frames; nothing happens on a broken link."""
        if self.broken is None:
            self._link.send(frames)

    def open_channel(self, ledger_id: int, receiver: AddReceiver, index: int) -> AddChannel:
        assert ledger_id not in self.channels, f"ledger {ledger_id} has a channel to {self.bookie_id}"
        channel = self.channels[ledger_id] = AddChannel(self, ledger_id, receiver, index)
        return channel

    def forget(self, ledger_id: int) -> None:
        self.channels.pop(ledger_id, None)

    def read(self, ledger_id: int, entry_ids: Sequence[int], flags: int = 0, key: bytes | None = None) -> list[Answer]:
        """Ask for entries one by one, all at once; -1 is the last entry that the bookie has."""
        answers: list[Answer] = []
        frames: list[bytes] = []
        for entry_id in entry_ids:
            answer = Answer(self._wheel.now)
            answer.frame = v2.read_request(ledger_id, entry_id, flags, key)
            answers.append(answer)
            before = self._reads.get((ledger_id, entry_id))
            if before is None:
                self._reads[ledger_id, entry_id] = answer
                frames.append(answer.frame)
            elif before.queued is None:
                before.queued = [answer]
            else:
                before.queued.append(answer)
        self._ask(answers, frames)
        return answers

    def read_batch(self, ledger_id: int, first: int, count_max: int, size_max: int) -> Answer:
        """Ask for entries from `first` on: at most `count_max`, and about `size_max` bytes; at least one."""
        answer = Answer(self._wheel.now)
        request_id = self._next_request_id
        self._next_request_id += 1
        self._batches[request_id] = answer
        self._ask([answer], [v2.batch_read_request(ledger_id, first, request_id, count_max, size_max)])
        return answer

    def tick(self, now: int) -> bool:
        """Give up reads that are overdue, and the link if it owes an answer for far too long."""
        overdue = now - self._timeout_ticks
        timeout = BookieTimeoutError(f"bookie {self.bookie_id} did not answer a read in time")
        for request_id, answer in list(self._batches.items()):
            if answer.tick > overdue:
                break
            del self._batches[request_id]
            answer.settle(timeout)
        for answer in self._reads.values():
            if answer.tick > overdue:
                break
            answer.settle(timeout)
            for other in answer.queued or ():
                if other.tick <= overdue:
                    other.settle(timeout)
            if answer.tick <= now - GIVE_UP_AFTER * self._timeout_ticks:
                self.give_up(timeout)
                break
        return bool(self._reads or self._batches)

    def give_up(self, error: BookieUnavailableError) -> None:
        """Close the link and tell everybody who waits."""
        self._link.close()
        self._closed(error)

    def _ask(self, answers: Sequence[Answer], frames: list[bytes]) -> None:
        if self.broken is not None:
            self._reads.clear()
            self._batches.clear()
            for answer in answers:
                answer.settle(self.broken)
            return
        self._wheel.watch(self)
        if frames:
            self._link.send([b"".join(frames)])

    def _received(self, responses: Sequence[v2.Response]) -> None:
        """All responses of one chunk."""
        for response in responses:
            if type(response) is v2.AddAcks:
                self._adds_answered(response)
            elif type(response) is v2.BatchResponse:
                batch = self._batches.pop(response.request_id, None)
                if batch is not None:
                    batch.settle(response)
            elif type(response) is v2.ReadResponse:
                self._read_answered(response)
            elif type(response) is v2.OtherResponse and response.opcode == v2.Opcode.BATCH_READ:
                self._batch_refused(response)
            else:
                self.give_up(
                    BookieProtocolError(f"bookie {self.bookie_id} answered what was never asked: {response!r}")
                )
            if self.broken is not None:
                return

    def _adds_answered(self, acks: v2.AddAcks) -> None:
        channel = self.channels.get(acks.ledger_id)
        if channel is None:
            return
        channel.outstanding -= acks.last - acks.first + 1
        if channel.receiver is not None:
            channel.receiver.adds_answered(channel, acks.rc, acks.first, acks.last)
        elif channel.outstanding <= 0:
            self.forget(acks.ledger_id)

    def _read_answered(self, response: v2.ReadResponse) -> None:
        place = (response.ledger_id, response.entry_id)
        answer = self._reads.pop(place, None)
        if answer is None:
            return
        if answer.queued:
            following = answer.queued.pop(0)
            following.queued = answer.queued
            self._reads[place] = following
            self._link.send([following.frame])
        answer.settle(response)

    def _batch_refused(self, response: v2.OtherResponse) -> None:
        """A refusal without a request id: the bookie knows no batch reads, so it refuses all that are under way."""
        for answer in self._batches.values():
            answer.settle(response)
        self._batches.clear()

    def _closed(self, error: BookieUnavailableError) -> None:
        if self.broken is not None:
            return
        self.broken = error
        answers = [*self._batches.values()]
        for answer in self._reads.values():
            answers.append(answer)
            answers.extend(answer.queued or ())
        self._reads.clear()
        self._batches.clear()
        channels = list(self.channels.values())
        self.channels.clear()
        for answer in answers:
            answer.settle(error)
        for channel in channels:
            if channel.receiver is not None:
                channel.receiver.bookie_lost(channel, error)


class BookieClient:
    """The connections of one ledger client, by bookie; made when first needed, forgotten when broken."""

    def __init__(self, connect: Callable[[str], BookieLink], wheel: DeadlineWheel, read_timeout_s: float) -> None:
        self._connect = connect
        self._wheel = wheel
        self._read_timeout_s = read_timeout_s
        self._connections: dict[str, list[BookieConnection]] = {}
        self.closed = False

    def connection(self, bookie_id: str) -> BookieConnection:
        """A connection for reads; BookieUnavailableError if one cannot even be begun."""
        connections = self._usable(bookie_id)
        return connections[0] if connections else self._open(bookie_id)

    def channel(self, bookie_id: str, ledger_id: int, receiver: AddReceiver, index: int) -> AddChannel:
        """A channel for the adds of a ledger; BookieUnavailableError."""
        for connection in self._usable(bookie_id):
            if ledger_id not in connection.channels:
                return connection.open_channel(ledger_id, receiver, index)
        return self._open(bookie_id).open_channel(ledger_id, receiver, index)

    def close(self) -> None:
        """Give all connections up, without a word to the writers."""
        self.closed = True
        for connections in list(self._connections.values()):
            for connection in connections:
                connection.channels.clear()
                connection.give_up(BookieUnavailableError("the ledger client is closed"))
        self._connections.clear()

    def _usable(self, bookie_id: str) -> list[BookieConnection]:
        connections = [each for each in self._connections.get(bookie_id, ()) if each.broken is None]
        self._connections[bookie_id] = connections
        return connections

    def _open(self, bookie_id: str) -> BookieConnection:
        if self.closed:
            raise BookieUnavailableError("the ledger client is closed")
        link = self._connect(bookie_id)
        connection = BookieConnection(bookie_id, link, self._wheel, self._read_timeout_s)
        self._connections[bookie_id].append(connection)
        return connection

"""A connection to a bookie: its add channels and its requests.

BookieConnection has what both protocol versions share. V2Connection, the usual one, speaks version 2, and uses a second
connection of version 3 (connection_v3.py) for requests that version 2 lacks.

There is no task, timeout scope or object per added entry. Version 2 answers adds by (ledger, entry), and version 3 is
matched the same way, so there is one channel per ledger and link. A second writer of the same ledger (a recovery beside
a live writer) gets a link of its own, and so does a writer that begins while answers to an earlier writer are
outstanding.

Version 2 matches answers by (ledger, entry, operation), so two reads of the same entry must never be in progress on one
link: the second waits until the first is answered. An abandoned read keeps its place until its answer comes, or until
the link is closed for not answering. Batch reads carry an id.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from quire.ledger.bookies.answers import Answer, failed
from quire.ledger.bookies.deadlines import DeadlineWheel
from quire.ledger.bookies.link import BookieLink
from quire.ledger.errors import BookieProtocolError, BookieTimeoutError, BookieUnavailableError
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.errors import BookkeeperWireError

GIVE_UP_AFTER = 3
"""Age in read timeouts of an unanswered request at which its link is closed."""


class AddReceiver(Protocol):
    """The part of a writer that its channels use. Calls may come from within `AddChannel.send`; they must not raise."""

    def adds_answered(self, channel: AddChannel, rc: int, first: int, last: int) -> None:
        """Called when the bookie answered `rc` to the adds of entries `first` to `last`, inclusive."""

    def bookie_lost(self, channel: AddChannel, error: BookieUnavailableError) -> None:
        """Called when the link is broken. Adds sent and not answered may or may not be stored."""


class AddChannel:
    """Adds of one ledger on one link."""

    __slots__ = ("_connection", "_ledger_id", "bookie_id", "index", "outstanding", "receiver", "write_flags")

    def __init__(
        self,
        connection: BookieConnection,
        ledger_id: int,
        receiver: AddReceiver,
        index: int,
        write_flags: int,
    ) -> None:
        self._connection = connection
        self._ledger_id = ledger_id
        self.bookie_id = connection.bookie_id
        self.receiver: AddReceiver | None = receiver
        self.index = index
        """Index of the bookie in the writer's ensemble."""
        self.outstanding = 0
        """Adds sent and not answered."""
        self.write_flags = write_flags
        """v3.DEFERRED_SYNC or 0."""

    def send(self, frames: Sequence[v2.Frame], count: int) -> None:
        """Send `count` adds of the channel's ledger, in frames of version 2 whatever the connection speaks."""
        self.outstanding += count
        self._connection.send_adds(frames, self.write_flags)

    def release(self) -> None:
        """End the channel: the writer needs it no more."""
        self.receiver = None
        if self.outstanding <= 0:
            self._connection.forget(self._ledger_id)


class BookieConnection(ABC):
    """One link with its channels and pending requests. The requests never raise: failures are in the answer."""

    supports_batch: bool
    """True if `read_batch` may be used."""

    def __init__(self, bookie_id: str, link: BookieLink, wheel: DeadlineWheel, read_timeout_s: float) -> None:
        self.bookie_id = bookie_id
        self.channels: dict[int, AddChannel] = {}
        self.broken: BookieUnavailableError | None = None
        self._link = link
        self._wheel = wheel
        self._timeout_ticks = wheel.ticks(read_timeout_s)
        link.closed = self._closed
        link.set_receiver(self._take)

    # --- adds

    @abstractmethod
    def send_adds(self, frames: Sequence[v2.Frame], write_flags: int) -> None:
        """Send ADD frames of version 2, of one ledger; no effect on a broken link."""

    def open_channel(self, ledger_id: int, receiver: AddReceiver, index: int, write_flags: int = 0) -> AddChannel:
        assert ledger_id not in self.channels, f"ledger {ledger_id} has a channel to {self.bookie_id}"
        channel = self.channels[ledger_id] = AddChannel(self, ledger_id, receiver, index, write_flags)
        return channel

    def forget(self, ledger_id: int) -> None:
        self.channels.pop(ledger_id, None)

    # --- other requests

    @abstractmethod
    def read(self, ledger_id: int, entry_ids: Sequence[int], flags: int = 0, key: bytes | None = None) -> list[Answer]:
        """Request entries one by one, all at once; -1 is the last entry that the bookie has. v2.ReadResponse."""

    @abstractmethod
    def read_batch(self, ledger_id: int, first: int, count_max: int, size_max: int) -> Answer:
        """Request entries from `first` on: at most `count_max`, and about `size_max` bytes; at least one.
        v2.BatchResponse.
        """

    @abstractmethod
    def read_lac(self, ledger_id: int) -> Answer:
        """Request the explicit LAC and the last entry. v3.LacAnswer."""

    @abstractmethod
    def write_lac(self, ledger_id: int, lac: int, key: bytes, body: bytes) -> Answer:
        """Store an explicit LAC; `body` is its sealed package. v3.Done."""

    @abstractmethod
    def force(self, ledger_id: int) -> Answer:
        """Request that all adds answered so far be synced to disk. v3.Done."""

    @abstractmethod
    def long_poll(self, ledger_id: int, previous_lac: int, timeout_ms: int, piggyback: bool = True) -> Answer:
        """Request the LAC once it exceeds `previous_lac`, or its value after `timeout_ms`. v2.ReadResponse.

        With `piggyback`, entry previous_lac + 1 is requested too. The response has `max_lac`, and `entry`, empty if it
        did not come.
        """

    @abstractmethod
    def bookie_info(self, bits: int) -> Answer:
        """Request disk sizes: v3.TOTAL_DISK_CAPACITY, v3.FREE_DISK_SPACE. v3.BookieInfo."""

    @abstractmethod
    def list_of_entries(self, ledger_id: int) -> Answer:
        """Request the list of the bookie's entries. v3.EntryList.

        Original bookies with DbLedgerStorage never answer this.
        """

    @abstractmethod
    def start_tls(self) -> Answer:
        """Request TLS. v2.OtherResponse; Rc.BAD_REQUEST from a bookie without it."""

    @abstractmethod
    def authenticate(self, plugin: str, payload: bytes) -> Answer:
        """Send credentials. v3.AuthAnswer; a bookie without authentication answers OK under the name
        AuthDisabledPlugin.
        """

    # --- deadlines, and the end

    @abstractmethod
    def tick(self, now: int) -> bool:
        """Fail overdue requests, and close the link if it owes an answer for far too long; return whether requests are
        pending.
        """

    def give_up(self, error: BookieUnavailableError) -> None:
        """Close the link and fail all its requests."""
        self._link.close()
        self._closed(error)

    @abstractmethod
    def _received(self, chunk: Buffer) -> None:
        """Handle all answers of one chunk. BookkeeperWireError is raised before any is handled."""

    @abstractmethod
    def _forget_answers(self) -> list[Answer]:
        """Return and forget all pending answers, which will not come."""

    def _take(self, chunk: Buffer) -> None:
        try:
            self._received(chunk)
        except BookkeeperWireError as error:
            self.give_up(BookieProtocolError(f"bookie {self.bookie_id} sent something that is not a response: {error}"))

    def _adds_answered(self, acks: v2.AddAcks) -> None:
        channel = self.channels.get(acks.ledger_id)
        if channel is None:
            return
        channel.outstanding -= acks.last - acks.first + 1
        if channel.receiver is not None:
            channel.receiver.adds_answered(channel, acks.rc, acks.first, acks.last)
        elif channel.outstanding <= 0:
            self.forget(acks.ledger_id)

    def _closed(self, error: BookieUnavailableError) -> None:
        if self.broken is not None:
            return
        self.broken = error
        answers = self._forget_answers()
        channels = list(self.channels.values())
        self.channels.clear()
        for answer in answers:
            answer.settle(error)
        for channel in channels:
            if channel.receiver is not None:
                channel.receiver.bookie_lost(channel, error)


def no_side() -> BookieConnection:
    """Default for a connection that is only used for requests of version 2."""
    raise BookieUnavailableError("there is no second connection for version 3")


class V2Connection(BookieConnection):
    """One link with its channels and pending reads.

    `side` is the connection of version 3 to the same bookie; it may raise BookieUnavailableError.
    """

    supports_batch = True

    def __init__(
        self,
        bookie_id: str,
        link: BookieLink,
        wheel: DeadlineWheel,
        read_timeout_s: float,
        *,
        side: Callable[[], BookieConnection] = no_side,
    ) -> None:
        self._side = side
        self._reads: dict[tuple[int, int], Answer] = {}
        self._batches: dict[int, Answer] = {}
        self._next_request_id = 0
        super().__init__(bookie_id, link, wheel, read_timeout_s)

    def open_channel(self, ledger_id: int, receiver: AddReceiver, index: int, write_flags: int = 0) -> AddChannel:
        assert not write_flags, "version 2 has no write flags"
        return super().open_channel(ledger_id, receiver, index)

    def send_adds(self, frames: Sequence[v2.Frame], write_flags: int) -> None:
        if self.broken is None:
            self._link.send(frames)

    def read(self, ledger_id: int, entry_ids: Sequence[int], flags: int = 0, key: bytes | None = None) -> list[Answer]:
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
        answer = Answer(self._wheel.now)
        request_id = self._next_request_id
        self._next_request_id += 1
        self._batches[request_id] = answer
        self._ask([answer], [v2.batch_read_request(ledger_id, first, request_id, count_max, size_max)])
        return answer

    # --- requests that version 2 lacks

    def read_lac(self, ledger_id: int) -> Answer:
        return self._beside(lambda side: side.read_lac(ledger_id))

    def write_lac(self, ledger_id: int, lac: int, key: bytes, body: bytes) -> Answer:
        return self._beside(lambda side: side.write_lac(ledger_id, lac, key, body))

    def force(self, ledger_id: int) -> Answer:
        return self._beside(lambda side: side.force(ledger_id))

    def long_poll(self, ledger_id: int, previous_lac: int, timeout_ms: int, piggyback: bool = True) -> Answer:
        return self._beside(lambda side: side.long_poll(ledger_id, previous_lac, timeout_ms, piggyback))

    def bookie_info(self, bits: int) -> Answer:
        return self._beside(lambda side: side.bookie_info(bits))

    def list_of_entries(self, ledger_id: int) -> Answer:
        return self._beside(lambda side: side.list_of_entries(ledger_id))

    def start_tls(self) -> Answer:
        return self._beside(lambda side: side.start_tls())

    def authenticate(self, plugin: str, payload: bytes) -> Answer:
        return self._beside(lambda side: side.authenticate(plugin, payload))

    def _beside(self, ask: Callable[[BookieConnection], Answer]) -> Answer:
        try:
            return ask(self._side())
        except BookieUnavailableError as error:
            return failed(error)

    # --- deadlines, and the end

    def tick(self, now: int) -> bool:
        overdue = now - self._timeout_ticks
        timeout = BookieTimeoutError(f"bookie {self.bookie_id} did not answer a read in time")
        for request_id, answer in list(self._batches.items()):
            if answer.tick > overdue:
                break
            del self._batches[request_id]
            answer.settle(timeout)
        for answer in self._reads.values():
            if answer.tick > overdue:
                continue  # a read that had to wait for its turn stands behind younger ones
            answer.settle(timeout)
            for other in answer.queued or ():
                if other.tick <= overdue:
                    other.settle(timeout)
            if answer.tick <= now - GIVE_UP_AFTER * self._timeout_ticks:
                self.give_up(timeout)
                break
        return bool(self._reads or self._batches)

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

    def _received(self, chunk: Buffer) -> None:
        for response in v2.decode_responses(chunk):
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
                    BookieProtocolError(f"bookie {self.bookie_id} answered what it was not asked: {response!r}")
                )
            if self.broken is not None:
                return

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
        """Handle a refusal without a request id: the bookie has no batch reads and refuses all pending ones."""
        for answer in self._batches.values():
            answer.settle(response)
        self._batches.clear()

    def _forget_answers(self) -> list[Answer]:
        answers = [*self._batches.values()]
        for answer in self._reads.values():
            answers.append(answer)
            answers.extend(answer.queued or ())
        self._reads.clear()
        self._batches.clear()
        return answers

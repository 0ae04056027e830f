"""A connection to a bookie, for either protocol version: its add channels and its requests.

There is no task, timeout scope or object per added entry. Version 2 answers adds by (ledger, entry), and version 3 is
matched the same way, so there is one channel per ledger and link. A second writer of the same ledger (a recovery beside
a live writer) gets a link of its own, and so does a writer that begins while answers to an earlier writer are
outstanding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from quire.ledger.bookies.answers import Answer
from quire.ledger.bookies.deadlines import DeadlineWheel
from quire.ledger.bookies.link import BookieLink
from quire.ledger.errors import BookieProtocolError, BookieUnavailableError
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

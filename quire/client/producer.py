"""Producer: entries to a topic, in order, each at least once."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial

import trio

from quire.client import commands
from quire.client.attachment import Attachment, Home
from quire.client.connection import Connection
from quire.client.errors import ClientError, ConnectionLostError, NotAllowedError, ServerRefusedError
from quire.client.message_id import MessageId
from quire.client.packing import Packed
from quire.client.retrying import final
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.client_splitter import ReceiptRun
from quire.wire.pulsar.sends import SendEncoder

_YIELD_BYTES = 64 << 10
"""Bytes written in one pass after which others get their turn, and what was written leaves."""
_UNCOUNTED = 6
"""Bytes of an entry that do not count for the largest message: magic and checksum."""


class Producer(Attachment):
    """What has no receipt is kept, in order, and sent again after a loss: the same bytes with the same sequence ids, under
    the same producer name. So nothing is left out, and an entry may be there twice."""

    def __init__(self, home: Home, topic: str, name: str, pending_bytes_max: int, pending_max: int) -> None:
        super().__init__(home, topic, f"producer of {topic}")
        if pending_bytes_max < 1 or pending_max < 1:
            raise ValueError("a producer needs room for one pending entry")
        self.name = name
        """As given, or as the broker made it."""
        self.last_ids = MessageId.EARLIEST
        """Where the entry of the last receipt stands; EARLIEST (-1, -1): none yet, or the broker had it already."""
        self._name_given = bool(name)
        self._bytes_max = pending_bytes_max
        self._count_max = pending_max
        self._producer_id = home.next_id()
        self._sends = SendEncoder(self._producer_id)
        self._epoch = -1
        self._entries: deque[bytes] = deque()
        """Without receipt, in order; the sequence ids are the last ones below `_next`."""
        self._counts: deque[int] = deque()
        self._bytes = 0
        self._next = 0
        self._progress_at = trio.current_time()
        self._waiters: list[tuple[int, int, trio.Event]] = []
        """Who waits for so few pending entries and bytes."""

    @property
    def waiting(self) -> bool:
        """Receipts are to come."""
        return bool(self._entries)

    @property
    def pending(self) -> int:
        """Entries without receipt."""
        return len(self._entries)

    async def send(self, entries: Sequence[Packed]) -> None:
        """Queue entries, in order; returns when the last one is queued, which waits while too much has no receipt.

        Raises what was refused for good of anything sent before; ServiceUnavailableError when nothing moves for too long:
        entries before the one that found no room are queued and will still be sent. NotAllowedError: an entry is larger
        than the broker takes; none of the call's entries behind it is queued.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check()
        done = 0
        while done < len(entries):
            if len(self._entries) >= self._count_max or self._bytes >= self._bytes_max:
                await self._wait_below(self._count_max // 2, self._bytes_max // 2)
            done += self._queue(entries, done)
            if self._connection is not None and self._connection.unflushed >= _YIELD_BYTES:
                await trio.lowlevel.checkpoint()

    async def flush(self) -> None:
        """Wait until everything sent has its receipt. Raises as `send`."""
        await trio.lowlevel.checkpoint()
        await self._wait_below(0, 0)

    def _queue(self, entries: Sequence[Packed], start: int) -> int:
        """Encode and send what there is room for, at least one; how many."""
        name = self.name
        publish_ms = self._home.world.clock.wall_ms()
        size_max = self._size_max()
        room = self._bytes_max - self._bytes
        encoded: list[bytes] = []
        counts: list[int] = []
        size = 0
        stop = min(len(entries), start + self._count_max - len(self._entries))
        try:
            for packed in entries[start:stop]:
                entry = packed.encode(name, self._next + len(encoded), publish_ms)
                if len(entry) > size_max:
                    raise NotAllowedError(
                        f"{self._what}: a message of {len(entry) - _UNCOUNTED} bytes; the broker takes"
                        f" {size_max - _UNCOUNTED}"
                    )
                encoded.append(entry)
                counts.append(packed.count)
                size += len(entry)
                if size >= room or size >= _YIELD_BYTES:
                    break
        finally:
            if encoded:
                if not self._entries:
                    self._progress_at = trio.current_time()
                if self._connection is not None:
                    self._write(self._connection, self._next, counts, encoded)
                self._entries += encoded
                self._counts += counts
                self._bytes += size
                self._next += len(encoded)
        return len(encoded)

    def _size_max(self) -> int:
        connection = self._connection
        return _UNCOUNTED + (self._options.message_size_max if connection is None else connection.message_size_max)

    def _write(self, connection: Connection, first: int, counts: Sequence[int], entries: Sequence[bytes]) -> None:
        parts = self._sends.frames(first, counts, entries)
        connection.write(parts, sum(map(len, parts)))

    async def _wait_below(self, count: int, size: int) -> None:
        """Wait until at most so much has no receipt."""
        begun = trio.current_time()
        timeout_s = self._options.operation_timeout_s
        while True:
            self._check()
            if len(self._entries) <= count and self._bytes <= size:
                return
            enough = trio.Event()
            waiter = (count, size, enough)
            self._waiters.append(waiter)
            if self._connection is not None:
                self._connection.look_again()
            try:
                with trio.move_on_at(max(begun, self._progress_at) + timeout_s):
                    await enough.wait()
            finally:
                self._waiters.remove(waiter)
            if not enough.is_set() and trio.current_time() >= max(begun, self._progress_at) + timeout_s:
                raise self._gave_up()

    def _wake(self) -> None:
        super()._wake()
        if self._failure is not None:
            for _, _, enough in self._waiters:
                enough.set()

    # What the connection tells

    def receipts(self, run: ReceiptRun) -> None:
        """Entries are durable, in the order in which they were sent."""
        first = self._next - len(self._entries)
        ids = run.sequence_ids
        if ids[0] < first:  # of what was sent once more, and had its receipt then
            ids = [sequence_id for sequence_id in ids if sequence_id >= first]
            if not ids:
                return
        count = len(ids)
        if count > len(self._entries) or ids != list(range(first, first + count)):
            self._begin_again(ConnectionLostError(f"receipts {ids[0]} to {ids[-1]}, where {first} is the next"))
            return
        entries, counts = self._entries, self._counts
        for _ in range(count):
            self._bytes -= len(entries.popleft())
            counts.popleft()
        self.last_ids = MessageId(run.ledger_id, run.entry_id, run.partition)
        self._progress_at = trio.current_time()
        pending, size = len(entries), self._bytes
        for count_max, size_max, enough in self._waiters:
            if pending <= count_max and size <= size_max:
                enough.set()

    def refused(self, error: ServerRefusedError, sequence_id: int) -> None:
        """A SEND was not stored: final for the producer, or reason to come again and send from there on."""
        if error.passing:
            self._begin_again(error)
        else:
            self._fail(final(error, f"{self._what}: entry {sequence_id} was refused"))

    def _begin_again(self, error: ClientError) -> None:
        connection = self._connection
        if connection is not None:
            connection.tell(self._close)
            self._detach(connection)
        self.lost(error)

    # Attachment

    async def _attach(self, connection: Connection) -> None:
        self._epoch += 1
        connection.producers[self._producer_id] = self
        answer = await connection.request(
            partial(
                commands.producer,
                producer_id=self._producer_id,
                topic=self.topic,
                name=self.name,
                given=self._name_given,
                epoch=self._epoch,
            )
        )
        self.name = answer.producer_success.producer_name
        if self._entries:
            self._progress_at = trio.current_time()
            self._write(connection, self._next - len(self._entries), tuple(self._counts), tuple(self._entries))

    def _detach(self, connection: Connection) -> None:
        connection.producers.pop(self._producer_id, None)

    def _close(self, request_id: int) -> pb.BaseCommand:
        return commands.close_producer(request_id, self._producer_id)

"""Common part of readers and consumers: the queue of received entries, and the permits that keep it small."""

from __future__ import annotations

import trio

from quire.client import commands
from quire.client.attachment import Attachment, Home
from quire.client.connection import Connection
from quire.client.deliveries import Deliveries
from quire.client.message_id import MessageId
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.client_splitter import MessageRun
from quire.wire.pulsar.frames import encode
from quire.wire.pulsar.metadata import batch_counts

FIRST_PART = 8
"""Fraction of the window requested as long as the size of messages is unknown."""


class Receiving(Attachment):
    """Attachment that receives entries.

    The broker may send `window` messages more than were taken, fewer if they are so large that they would not fit into
    `receive_bytes_max`, and goes on when half of them are taken.
    """

    def __init__(self, home: Home, topic: str, what: str, window: int) -> None:
        super().__init__(home, topic, what)
        if window < 1:
            raise ValueError(f"a window of {window} messages lets none through")
        self._window = window
        self._consumer_id = -1
        self._queue = Deliveries()
        self._permits = 0
        """Messages that the broker may have sent or may send, and that no caller has taken yet."""
        self._message_bytes = max(1.0, home.options.receive_bytes_max / window * FIRST_PART)
        """Mean size of a message among those taken last; at first a cautious estimate."""
        self.queued_bytes = 0
        """Bytes of received entries that were not taken."""
        self.waiting = False
        """True while a caller waits and the queue is empty."""

    async def receive(self) -> Deliveries:
        """Return all received entries, after waiting for at least one.

        Raises:
            ServiceUnavailableError: no broker was available for the operation timeout.
            TopicNotFoundError: the topic was deleted.
            ClientError: it was closed, or permanently refused.
        """
        await trio.lowlevel.checkpoint()
        begun = trio.current_time()
        while not self._queue.entries:
            self._check()
            if self._connection is not None:
                self.waiting = True
                self._connection.look_again()
                try:
                    await self._changed.wait()
                finally:
                    self.waiting = False
                continue
            with trio.move_on_at(max(begun, self._lost_at) + self._options.operation_timeout_s) as patience:
                await self._changed.wait()
            if patience.cancelled_caught and self._connection is None:
                raise self._gave_up()
        return self._take()

    async def last_message_id(self) -> MessageId:
        """Return the id of the last message of the topic; EARLIEST (-1, -1): there is none. Raises ClientError."""
        return last_message_of(await self._request(lambda number: commands.last_message_id(number, self._consumer_id)))

    async def close(self) -> None:
        """Drop received entries, and close it here and at the broker, waiting briefly for the broker's answer.

        A second call has no effect."""
        self._forget()
        await super().close()

    def _take(self) -> Deliveries:
        taken = self._queue
        count = sum(batch_counts(taken.entries))
        self._message_bytes = max(1.0, self.queued_bytes / count)
        self._forget()
        self._permits -= count
        self._replenish()
        if self._connection is not None:
            self._connection.look_again()
        return taken

    def _forget(self) -> None:
        """Leave the queue empty."""
        self._queue = Deliveries()
        self.queued_bytes = 0

    def _keep(self, run: MessageRun) -> None:
        """Append received entries to the queue."""
        queue = self._queue
        queue.ledger_ids += run.ledger_ids
        queue.entry_ids += run.entry_ids
        queue.entries += run.entries
        self.queued_bytes += run.size
        if self.waiting:
            self._wake()

    def _replenish(self) -> None:
        """Send permits, once half of a window can be granted."""
        window = min(self._window, max(1, int(self._options.receive_bytes_max / self._message_bytes)))
        missing = window - self._permits
        if self._connection is not None and 2 * missing >= window:
            self._connection.send(encode(commands.flow(self._consumer_id, missing)))
            self._permits = window

    # Attachment

    def _attached_to(self, connection: Connection) -> None:
        super()._attached_to(connection)
        self._replenish()

    def _detach(self, connection: Connection) -> None:
        connection.consumers.pop(self._consumer_id, None)

    def _close(self, request_id: int) -> pb.BaseCommand:
        return commands.close_consumer(request_id, self._consumer_id)


def last_message_of(answer: pb.BaseCommand) -> MessageId:
    """Return the id in a GET_LAST_MESSAGE_ID_RESPONSE; EARLIEST if the topic has no entry."""
    last = MessageId.of(answer.getLastMessageIdResponse.last_message_id)
    return last if last.entry_id >= 0 else MessageId.EARLIEST

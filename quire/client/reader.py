"""Reader: every entry of a topic from a position on, in order, each once."""

from __future__ import annotations

from functools import partial

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


class Reader(Attachment):
    """Reader of one topic, opened by `Client.reader`.

    It holds no data: entries that retention takes away before they are read are passed over, which shows as a gap in
    the ids. What has arrived waits in a queue; the broker may send `window` messages more than were taken, fewer if
    they are so large that they would not fit into `receive_bytes_max`, and goes on when half of them are taken. After a
    loss it subscribes behind the last entry that came.
    """

    def __init__(
        self, home: Home, topic: str, start: MessageId, window: int, name: str, compacted: bool = False
    ) -> None:
        super().__init__(home, topic, f"reader of {topic}")
        if window < 1:
            raise ValueError(f"a window of {window} messages lets none through")
        self._start = start
        self._compacted = compacted
        self._window = window
        self._name = name or f"reader-{home.rng.getrandbits(40):010x}"
        self._comings = 0
        self._consumer_id = -1
        self._last: tuple[int, int] | None = None
        """The last entry received, or, before the first, the one behind which reading begins."""
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

        Returns:
            At least one entry, in order.

        Raises:
            ServiceUnavailableError: no broker was available for the operation timeout.
            TopicNotFoundError: the topic was deleted.
            ClientError: the reader was closed, or permanently refused.
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
        """Return the id of the last message of the topic; EARLIEST (-1, -1): there is none.

        Raises:
            ClientError: the request failed.
        """
        return last_message_of(await self._request(lambda number: commands.last_message_id(number, self._consumer_id)))

    async def close(self) -> None:
        """Drop received entries, and close the reader here and at the broker, waiting briefly for the broker's answer.

        A second call has no effect."""
        self._queue = Deliveries()
        self.queued_bytes = 0
        await super().close()

    def _take(self) -> Deliveries:
        taken = self._queue
        count = sum(batch_counts(taken.entries))
        self._message_bytes = max(1.0, self.queued_bytes / count)
        self._queue = Deliveries()
        self.queued_bytes = 0
        self._permits -= count
        self._replenish()
        if self._connection is not None:
            self._connection.look_again()
        return taken

    def _replenish(self) -> None:
        """Send permits, once half of a window can be granted."""
        window = min(self._window, max(1, int(self._options.receive_bytes_max / self._message_bytes)))
        missing = window - self._permits
        if self._connection is not None and 2 * missing >= window:
            self._connection.send(encode(commands.flow(self._consumer_id, missing)))
            self._permits = window

    # Events of the connection

    def delivered(self, run: MessageRun) -> None:
        """Handle received entries."""
        passed = 0
        if self._last is not None and (run.ledger_ids[0], run.entry_ids[0]) <= self._last:
            passed = self._drop_known(run)
        if run.entries:
            self._last = (run.ledger_ids[-1], run.entry_ids[-1])
            queue = self._queue
            queue.ledger_ids += run.ledger_ids
            queue.entry_ids += run.entry_ids
            queue.entries += run.entries
            self.queued_bytes += run.size
            if self.waiting:
                self._wake()
        if passed:
            self._permits -= passed
            self._replenish()

    def _drop_known(self, run: MessageRun) -> int:
        """Drop entries received before; return how many messages those were."""
        assert self._last is not None, "something came before"
        known = 0
        while known < len(run.entries) and (run.ledger_ids[known], run.entry_ids[known]) <= self._last:
            known += 1
        dropped = run.entries[:known]
        run.size -= sum(map(len, dropped))
        del run.ledger_ids[:known], run.entry_ids[:known], run.entries[:known]
        return sum(batch_counts(dropped))

    # Attachment

    async def _attach(self, connection: Connection) -> None:
        # A new id and name each time: messages in flight for the old ones are dropped, and the broker need not find out
        # first that the last connection is dead.
        self._comings += 1
        self._consumer_id = self._home.next_id()
        name = self._name if self._comings == 1 else f"{self._name}-{self._comings}"
        connection.consumers[self._consumer_id] = self
        start = self._start if self._last is None else _resume(*self._last)
        await connection.request(
            partial(
                commands.subscribe,
                consumer_id=self._consumer_id,
                topic=self.topic,
                subscription=name,
                durable=False,
                start=start,
                create_topic=False,
                name=name,
                compacted=self._compacted,
            )
        )
        if start == MessageId.LATEST:
            # Resume at this end, not at a later one, if the connection is lost before the first entry.
            ask = partial(commands.last_message_id, consumer_id=self._consumer_id)
            end = (await connection.request(ask)).getLastMessageIdResponse
            known = end.HasField("consumer_mark_delete_position")
            place = MessageId.of(end.consumer_mark_delete_position if known else end.last_message_id)
            self._last = (place.ledger_id, place.entry_id)
        self._permits = sum(batch_counts(self._queue.entries))

    def _attached_to(self, connection: Connection) -> None:
        super()._attached_to(connection)
        self._replenish()

    def _detach(self, connection: Connection) -> None:
        connection.consumers.pop(self._consumer_id, None)

    def _close(self, request_id: int) -> pb.BaseCommand:
        return commands.close_consumer(request_id, self._consumer_id)


def _resume(ledger_id: int, entry_id: int) -> MessageId:
    """Return where to begin in order to continue behind an entry: at the entry itself, which exists and is then
    dropped.

    An entry -1 is before the first of its ledger."""
    if ledger_id < 0:
        return MessageId.EARLIEST
    return MessageId(ledger_id, max(entry_id, 0))


def last_message_of(answer: pb.BaseCommand) -> MessageId:
    """Return the id in a GET_LAST_MESSAGE_ID_RESPONSE; EARLIEST if the topic has no entry."""
    last = MessageId.of(answer.getLastMessageIdResponse.last_message_id)
    return last if last.entry_id >= 0 else MessageId.EARLIEST

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
"""As long as the size of messages is not known, one part of so many of the window is asked for."""


class Reader(Attachment):
    """An Exclusive consumer of a subscription that is not durable and that nobody else knows.

    It holds no data: entries that retention takes away before they are read are passed over, which shows as a gap in the
    ids. What has arrived waits in a queue; the broker may send `window` messages more than were taken, fewer if they are so
    large that they would not fit into `receive_bytes_max`, and goes on when half of them are taken. After a loss it
    subscribes behind the last entry that came.
    """

    def __init__(self, home: Home, topic: str, start: MessageId, window: int, name: str) -> None:
        super().__init__(home, topic, f"reader of {topic}")
        if window < 1:
            raise ValueError(f"a window of {window} messages lets none through")
        self._start = start
        self._window = window
        self._name = name or f"reader-{home.rng.getrandbits(40):010x}"
        self._comings = 0
        self._consumer_id = -1
        self._last: tuple[int, int] | None = None
        """The last entry that came, or, before the first, the one behind which it begins."""
        self._queue = Deliveries()
        self._permits = 0
        """Messages that the broker may have sent or may send, and that nobody took yet."""
        self._message_bytes = max(1.0, home.options.receive_bytes_max / window * FIRST_PART)
        """Mean size of a message, of what was taken last; at first a careful guess."""
        self.queued_bytes = 0
        """Of entries that came and were not taken."""
        self.waiting = False
        """Somebody waits, and the queue is empty."""

    async def receive(self) -> Deliveries:
        """Everything that has arrived, at least one entry: waits for the first. ServiceUnavailableError when the broker
        stays away for too long, TopicNotFoundError when the topic was deleted; other ClientErrors when closed."""
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
        """The last message there is in the topic; EARLIEST (-1, -1): none. ClientError."""
        return last_message_of(await self._request(lambda number: commands.last_message_id(number, self._consumer_id)))

    async def close(self) -> None:
        """Drop what has arrived, and end it here and at the broker, which is waited for a moment. Safe twice."""
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
        """Give permits, once half of a window can be given."""
        window = min(self._window, max(1, int(self._options.receive_bytes_max / self._message_bytes)))
        missing = window - self._permits
        if self._connection is not None and 2 * missing >= window:
            self._connection.send(encode(commands.flow(self._consumer_id, missing)))
            self._permits = window

    # What the connection tells

    def delivered(self, run: MessageRun) -> None:
        """Entries came."""
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
        """Leave out what came before; returns how many messages that were."""
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
        # A new id and name each time: what is under way to the last ones is nobody's, and the broker need not find out
        # first that our last connection is dead.
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
            )
        )
        if start == MessageId.LATEST:
            # To come again at this very end, not at a later one, if the connection is lost before the first entry.
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
    """Where to begin in order to go on behind an entry: with itself, for it is known to be there; it is passed over. An
    entry -1 stands before the first of its ledger."""
    if ledger_id < 0:
        return MessageId.EARLIEST
    return MessageId(ledger_id, max(entry_id, 0))


def last_message_of(answer: pb.BaseCommand) -> MessageId:
    """From a GET_LAST_MESSAGE_ID_RESPONSE; EARLIEST if the topic has no entry."""
    last = MessageId.of(answer.getLastMessageIdResponse.last_message_id)
    return last if last.entry_id >= 0 else MessageId.EARLIEST

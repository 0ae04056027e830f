"""Reader: every entry of a topic from a position on, in order, each once."""

from __future__ import annotations

from functools import partial

from quire.client import commands
from quire.client.attachment import Home
from quire.client.connection import Connection
from quire.client.message_id import MessageId
from quire.client.receiving import Receiving
from quire.wire.pulsar.client_splitter import MessageRun
from quire.wire.pulsar.metadata import batch_counts


class Reader(Receiving):
    """Reader of one topic, opened by `Client.reader`.

    It holds no data: entries that retention takes away before they are read are passed over, which shows as a gap in
    the ids. After a loss it subscribes behind the last entry that came.
    """

    def __init__(
        self, home: Home, topic: str, start: MessageId, window: int, name: str, compacted: bool = False
    ) -> None:
        super().__init__(home, topic, f"reader of {topic}", window)
        self._start = start
        self._compacted = compacted
        self._name = name or f"reader-{home.rng.getrandbits(40):010x}"
        self._comings = 0
        self._last: tuple[int, int] | None = None
        """The last entry received, or, before the first, the one behind which reading begins."""

    # Events of the connection

    def delivered(self, run: MessageRun) -> None:
        """Handle received entries."""
        passed = 0
        if self._last is not None and (run.ledger_ids[0], run.entry_ids[0]) <= self._last:
            passed = self._drop_known(run)
        if run.entries:
            self._last = (run.ledger_ids[-1], run.entry_ids[-1])
            self._keep(run)
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


def _resume(ledger_id: int, entry_id: int) -> MessageId:
    """Return where to begin in order to continue behind an entry: at the entry itself, which exists and is then
    dropped.

    An entry -1 is before the first of its ledger."""
    if ledger_id < 0:
        return MessageId.EARLIEST
    return MessageId(ledger_id, max(entry_id, 0))

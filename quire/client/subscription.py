"""Subscription: takes no messages, but holds a topic's data from a position on, and moves that position."""

from __future__ import annotations

from functools import partial

from quire.client import commands
from quire.client.attachment import Attachment, Home
from quire.client.connection import Connection
from quire.client.message_id import MessageId
from quire.client.reader import last_message_of
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.client_splitter import MessageRun


class Subscription(Attachment):
    """An Exclusive consumer of a durable subscription that never asks for messages. The data is held whether it is attached
    or not; being attached keeps others from moving the position."""

    queued_bytes = 0
    waiting = False

    def __init__(self, home: Home, topic: str, name: str, start: MessageId | None, create_topic: bool) -> None:
        super().__init__(home, topic, f"subscription {name!r} of {topic}")
        self.name = name
        self._start = start
        self._create_topic = create_topic
        self._consumer_id = -1
        self._acknowledged: MessageId | None = None
        """What is known to be durable, to save asking for it again."""

    async def mark_delete(self) -> MessageId:
        """The last entry that the subscription does not hold; the one behind it is the next. ClientError."""
        answer = await self._ask_last()
        return MessageId.of(answer.getLastMessageIdResponse.consumer_mark_delete_position)

    async def last_message_id(self) -> MessageId:
        """The last message there is in the topic; EARLIEST (-1, -1): none. ClientError."""
        return last_message_of(await self._ask_last())

    async def acknowledge(self, through: MessageId) -> None:
        """Let go of everything up to the entry `through`, as a whole; durable on return. A position before the present one
        changes nothing. ClientError; then it may have happened or not, and may be asked again."""
        if self._acknowledged is not None and through <= self._acknowledged:
            return
        await self._request(lambda number: commands.acknowledge(number, self._consumer_id, through))
        self._acknowledged = through

    async def seek(self, position: MessageId) -> None:
        """Make `position` the next entry, wherever that is; durable on return. EARLIEST and LATEST are the ends. ClientError;
        then it may have happened or not, and may be asked again."""
        self._acknowledged = None
        await self._request(lambda number: commands.seek(number, self._consumer_id, position))

    async def unsubscribe(self) -> None:
        """Delete the subscription: it holds nothing any more. ClientError; else this object is closed."""
        await self._request(lambda number: commands.unsubscribe(number, self._consumer_id))
        await self.close()

    async def _ask_last(self) -> pb.BaseCommand:
        return await self._request(lambda number: commands.last_message_id(number, self._consumer_id))

    def delivered(self, run: MessageRun) -> None:
        """Nothing was asked for, so nothing is taken."""

    async def _attach(self, connection: Connection) -> None:
        self._consumer_id = self._home.next_id()
        connection.consumers[self._consumer_id] = self
        await connection.request(
            partial(
                commands.subscribe,
                consumer_id=self._consumer_id,
                topic=self.topic,
                subscription=self.name,
                durable=True,
                start=self._start,
                create_topic=self._create_topic,
                name=self.name,
            )
        )
        self._create_topic = False  # a topic that was deleted since must not come back empty

    def _detach(self, connection: Connection) -> None:
        connection.consumers.pop(self._consumer_id, None)

    def _close(self, request_id: int) -> pb.BaseCommand:
        return commands.close_consumer(request_id, self._consumer_id)

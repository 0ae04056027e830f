"""Subscription: receives no messages, but retains a topic's data from a position on, and moves that position."""

from __future__ import annotations

from functools import partial

from quire.client import commands
from quire.client.attachment import Attachment, Home
from quire.client.connection import Connection
from quire.client.message_id import MessageId
from quire.client.receiving import last_message_of
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.client_splitter import MessageRun


class Subscription(Attachment):
    """Exclusive consumer of a durable subscription that never requests messages, opened by `Client.subscription`.

    The data is retained whether it is attached or not; while attached, it prevents others from moving the position."""

    queued_bytes = 0
    waiting = False

    def __init__(self, home: Home, topic: str, name: str, start: MessageId | None, create_topic: bool) -> None:
        super().__init__(home, topic, f"subscription {name!r} of {topic}")
        self.name = name
        self._start = start
        self._create_topic = create_topic
        self._consumer_id = -1
        self._acknowledged: MessageId | None = None
        """Position known to be durable, to avoid repeated requests."""

    async def mark_delete(self) -> MessageId:
        """Return the last entry that the subscription does not retain; the one behind it is the next.

        Raises:
            ClientError: the request failed.
        """
        answer = await self._ask_last()
        return MessageId.of(answer.getLastMessageIdResponse.consumer_mark_delete_position)

    async def last_message_id(self) -> MessageId:
        """Return the id of the last message of the topic; EARLIEST (-1, -1): there is none.

        Raises:
            ClientError: the request failed.
        """
        return last_message_of(await self._ask_last())

    async def acknowledge(self, through: MessageId) -> None:
        """Release everything up to the entry `through`, as a whole; durable on return.

        Args:
            through: last entry to release (inclusive). A position before the present one changes nothing.

        Raises:
            ClientError: the outcome is unknown, and the call may be repeated.
        """
        if self._acknowledged is not None and through <= self._acknowledged:
            return
        await self._request(lambda number: commands.acknowledge(number, self._consumer_id, through))
        self._acknowledged = through

    async def seek(self, position: MessageId) -> None:
        """Make `position` the next entry; durable on return.

        Args:
            position: any position; EARLIEST and LATEST are the ends.

        Raises:
            ClientError: the outcome is unknown, and the call may be repeated.
        """
        self._acknowledged = None
        await self._request(lambda number: commands.seek(number, self._consumer_id, position))

    async def unsubscribe(self) -> None:
        """Delete the subscription, which then retains nothing, and close this object.

        Raises:
            ClientError: the request failed; this object stays open.
        """
        await self._request(lambda number: commands.unsubscribe(number, self._consumer_id))
        await self.close()

    async def _ask_last(self) -> pb.BaseCommand:
        return await self._request(lambda number: commands.last_message_id(number, self._consumer_id))

    def delivered(self, run: MessageRun) -> None:
        """Ignore entries: none were requested."""

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
        self._create_topic = False  # a topic deleted since must not be recreated empty

    def _detach(self, connection: Connection) -> None:
        connection.consumers.pop(self._consumer_id, None)

    def _close(self, request_id: int) -> pb.BaseCommand:
        return commands.close_consumer(request_id, self._consumer_id)

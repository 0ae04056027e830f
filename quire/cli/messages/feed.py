"""Feed: the messages of one topic or partition, as a consumer or reader receives them, with what to acknowledge."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import trio

from quire.cli.messages.records import MessageRecord
from quire.client.client import Consumer, Reader
from quire.client.deliveries import Deliveries
from quire.client.message_id import MessageId
from quire.client.unpacking import Messages, Opener
from quire.wire.pulsar.metadata import chunk_of

Position: TypeAlias = tuple[int, int]
IDLE_S = 0.5
"""Silence after which a consumer asks whether the end was acknowledged by others."""


@dataclass(frozen=True, slots=True)
class EntryMessages:
    """Messages of one entry, and the entries to acknowledge with it: of a chunked message all of its pieces."""

    records: list[MessageRecord]
    ids: list[Position]


@dataclass(frozen=True, slots=True)
class FeedPart:
    """Messages that a feed received at once. `ended`: it has no more, because the end was reached."""

    feed: Feed
    units: list[EntryMessages]
    ended: bool = False


class Feed:
    """One receiver, and the end at which it stops, if it does."""

    def __init__(self, topic: str, receiver: Consumer | Reader, *, first: MessageId | None = None) -> None:
        """`first`: messages before it are left out, those of its own entry by their number in the batch."""
        self.topic = topic
        self.receiver = receiver
        self._first = first
        self._opener = Opener()
        self._pieces: dict[str, list[Position]] = {}
        """Entries of incomplete chunked messages, by uuid."""

    async def deliver(self, into: trio.MemorySendChannel[FeedPart], end: MessageId | None) -> None:
        """Hand on what is received; with `end`, until the message there was received, or others acknowledged it."""
        async with into:
            if end is not None and await self._is_past(end):
                await into.send(FeedPart(self, [], ended=True))
                return
            while True:
                deliveries = None
                with trio.move_on_after(IDLE_S if end is not None else float("inf")):
                    deliveries = await self.receiver.receive()
                if deliveries is None:
                    assert end is not None
                    ended = isinstance(self.receiver, Consumer) and await self._is_past(end)
                    units: list[EntryMessages] = []
                else:
                    units = list(self._units(deliveries))
                    last = (deliveries.ledger_ids[-1], deliveries.entry_ids[-1])
                    ended = end is not None and last >= (end.ledger_id, end.entry_id)
                if units or ended:
                    await into.send(FeedPart(self, units, ended))
                if ended:
                    return

    async def end(self) -> MessageId:
        """Return the id of the last message of the topic. Raises ClientError."""
        return await self.receiver.last_message_id()

    async def _is_past(self, end: MessageId) -> bool:
        """Return whether nothing up to `end` is to come. Raises ClientError."""
        if end == MessageId.EARLIEST:
            return True
        if isinstance(self.receiver, Reader):
            return self._first is not None and (self._first.ledger_id, self._first.entry_id) > (
                end.ledger_id,
                end.entry_id,
            )
        done = await self.receiver.mark_delete()
        return (done.ledger_id, done.entry_id) >= (end.ledger_id, end.entry_id)

    def _units(self, deliveries: Deliveries) -> Iterator[EntryMessages]:
        messages = Messages()
        gaps = self._opener.open(deliveries, messages)
        for lost in self._opener.complete(gaps, messages) if gaps else ():
            place = f"{lost.ledger_id}:{lost.entry_id}"
            print(f"left out: the chunked message {place}, whose first pieces were not received", file=sys.stderr)
        rows: dict[Position, list[int]] = {}
        for row, place_of_row in enumerate(zip(messages.ledger_ids, messages.entry_ids, strict=True)):
            rows.setdefault(place_of_row, []).append(row)
        positions = zip(deliveries.ledger_ids, deliveries.entry_ids, strict=True)
        for position, entry in zip(positions, deliveries.entries, strict=True):
            found = [self._record(messages, row) for row in rows.get(position, ()) if self._wanted(messages, row)]
            ids = [position]
            if (chunk := chunk_of(entry)) is not None:
                self._pieces.setdefault(chunk[0], []).append(position)
                if chunk[1] < chunk[2] - 1:
                    continue
                ids = self._pieces.pop(chunk[0])
            yield EntryMessages(found, ids)

    def _wanted(self, messages: Messages, row: int) -> bool:
        first = self._first
        if first is None:
            return True
        place = (messages.ledger_ids[row], messages.entry_ids[row], messages.batch_indexes[row])
        return place >= (first.ledger_id, first.entry_id, first.batch_index)

    def _record(self, messages: Messages, row: int) -> MessageRecord:
        place = MessageId(messages.ledger_ids[row], messages.entry_ids[row], batch_index=messages.batch_indexes[row])
        return MessageRecord(
            value=messages.values[row],
            key=messages.keys[row],
            properties=tuple(messages.properties[row]),
            event_ms=messages.event_ms[row],
            topic=self.topic,
            id=str(place),
            publish_ms=messages.publish_ms[row],
        )


Opening: TypeAlias = Callable[[str], Awaitable[Feed]]
"""Opens the feed of a topic or partition."""

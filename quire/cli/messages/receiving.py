"""Common part of `quire consume` and `quire read`: feeds of topics, merged and written until enough was received."""

from __future__ import annotations

import re
import select
import sys
import time
from dataclasses import dataclass

import trio

from quire.cli.messages.access import FlagsError, full_name
from quire.cli.messages.feed import Feed, FeedPart, Opening, Position
from quire.cli.messages.flags import flag
from quire.cli.messages.output import MessageOutput, OutputFlags
from quire.cli.perf.pacing import PaceTimer, Schedule
from quire.client.client import Client, Consumer
from quire.client.message_id import MessageId
from quire.wire.pulsar.names import TopicName

DISCOVERY_S = 30.0
"""Pause between two looks for new topics of a pattern."""
_CLOSE_S = 5.0
_WATCH_S = 0.5
_PARTITION = re.compile(r"-partition-\d+$")


@dataclass(frozen=True, kw_only=True)
class ReceiveFlags(OutputFlags):
    """Flags of `quire consume` and `quire read`."""

    num_messages: int = flag(1, "--num-messages", "-n", help="Messages to receive; 0: without end (with --end 0).")
    end: bool = flag(False, "--end", help="Stop at the end that the topic has at the start.")
    rate: float = flag(0.0, "--rate", "-r", help="Messages per second; 0: as fast as possible.")
    queue_size: int = flag(1000, "--queue-size", "-q", help="Messages that the broker may send ahead.")

    def checked(self) -> int:
        """Return how many messages are to be received; 0: no end. Raises FlagsError."""
        if self.num_messages < 0:
            raise FlagsError(f"--num-messages is {self.num_messages}, and must be 0 or more")
        if self.queue_size < 1:
            raise FlagsError(f"--queue-size is {self.queue_size}, and must be above 0")
        return 0 if self.end and self.num_messages == 1 else self.num_messages


class Pattern:
    """Regular expression of topics in one namespace: tenant/namespace/EXPRESSION, or EXPRESSION in public/default."""

    def __init__(self, text: str) -> None:
        """Raises FlagsError."""
        rest = text.removeprefix("persistent://")
        parts = rest.split("/", 2)
        tenant, namespace, local = parts if len(parts) == 3 else ("public", "default", rest)
        self.namespace = f"{tenant}/{namespace}"
        full_name(f"persistent://{self.namespace}/x")
        try:
            self._local = re.compile(local)
        except re.error as error:
            raise FlagsError(f"{local!r} is not a regular expression: {error}") from None

    async def topics(self, client: Client) -> list[str]:
        """Return the topics and partitions that match. Raises ClientError."""
        found = await client.topics(self.namespace)
        return [each for each in found if self._local.fullmatch(_PARTITION.sub("", TopicName.parse(each).local))]


class TopicReceiving:
    """Feeds, and the writing of what they have."""

    def __init__(self, flags: ReceiveFlags, open_feed: Opening, *, acknowledge: bool) -> None:
        self._wanted = flags.checked()
        self._flags = flags
        self._open_feed = open_feed
        self._acknowledge = acknowledge
        self._output = MessageOutput(flags)
        self._feeds: dict[str, Feed] = {}
        self._running = 0

    @property
    def count(self) -> int:
        """Number of messages written."""
        return self._output.count

    async def run(self, client: Client, topics: list[str], pattern: Pattern | None) -> None:
        """Receive until enough was written, or all ends are reached. Raises ClientError, BrokenPipeError."""
        sender, receiver = trio.open_memory_channel[FeedPart](0)
        async with trio.open_nursery() as nursery, receiver:
            async with sender:
                for topic in topics:
                    await self._add(topic, nursery, sender)
                if pattern is not None and not self._flags.end:
                    nursery.start_soon(self._discover, client, pattern, nursery, sender.clone())
            nursery.start_soon(_watch_output)
            with PaceTimer() as timer:
                if self._running or pattern is not None:
                    await self._write(receiver, timer)
            nursery.cancel_scope.cancel()

    async def close(self) -> None:
        """Close the feeds, after which all acknowledgements have arrived."""
        with trio.move_on_after(_CLOSE_S, shield=True):
            async with trio.open_nursery() as nursery:
                for feed in self._feeds.values():
                    nursery.start_soon(feed.receiver.close)

    async def _add(self, topic: str, nursery: trio.Nursery, sender: trio.MemorySendChannel[FeedPart]) -> None:
        feed = self._feeds[topic] = await self._open_feed(topic)
        end: MessageId | None = await feed.end() if self._flags.end else None
        self._running += 1
        nursery.start_soon(feed.deliver, sender.clone(), end)

    async def _discover(
        self, client: Client, pattern: Pattern, nursery: trio.Nursery, sender: trio.MemorySendChannel[FeedPart]
    ) -> None:
        async with sender:
            while True:
                await trio.sleep(DISCOVERY_S)
                for topic in await pattern.topics(client):
                    if topic not in self._feeds:
                        await self._add(topic, nursery, sender)

    async def _write(self, receiver: trio.MemoryReceiveChannel[FeedPart], timer: PaceTimer) -> None:
        rate = self._flags.rate
        schedule = Schedule(time.monotonic(), 1 / rate if rate > 0 else 0.0, 0)
        async for run in receiver:
            done: list[Position] = []
            try:
                for unit in run.units:
                    room = self._wanted - self.count if self._wanted else len(unit.records)
                    records = unit.records[:room]
                    if rate > 0:
                        for record in records:
                            await timer.until(schedule.next)
                            schedule.take(time.monotonic(), 1)
                            self._output.write([record])
                    else:
                        self._output.write(records)
                    if len(records) < len(unit.records):
                        _tell_partial(len(unit.records) - len(records), acknowledge=self._acknowledge)
                        return
                    done += unit.ids
                    if self._wanted and self.count >= self._wanted:
                        return
            finally:
                if self._acknowledge and done:
                    assert isinstance(run.feed.receiver, Consumer)
                    run.feed.receiver.acknowledge(done)
            if run.ended:
                self._running -= 1
                if not self._running:
                    return


async def _watch_output() -> None:
    """Raise BrokenPipeError when the reader of standard output has gone, though there is nothing to write."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # errors are reported unasked
    while True:
        await trio.sleep(_WATCH_S)
        if any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0)):
            raise BrokenPipeError("the reader of standard output has gone")


def _tell_partial(count: int, *, acknowledge: bool) -> None:
    """An entry is acknowledged as a whole: part of it would take the other messages from the subscription."""
    if acknowledge:
        text = f"{count} more messages are in the last batch, which is not acknowledged and will be delivered again"
        print(text, file=sys.stderr)

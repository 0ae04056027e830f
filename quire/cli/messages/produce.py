"""`quire produce`: messages from arguments, files, pipes or JSON lines into a topic."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import trio

from quire.cli.messages.access import INTERRUPTED, ClusterAccess, FlagsError, full_name, guarded
from quire.cli.messages.chunking import pack_chunks
from quire.cli.messages.flags import argument, flag
from quire.cli.messages.records import InputCutter, MessageRecord, Pairs, from_json, unescape
from quire.cli.messages.schema import HELP as SCHEMA_HELP
from quire.cli.messages.schema import schema_of
from quire.cli.messages.stopping import run_async, stoppable
from quire.cli.perf.pacing import PaceTimer, Schedule
from quire.client.client import Client, Producer, open_client
from quire.client.compression import KINDS
from quire.client.packing import Packed, pack
from quire.client.routing import partition_of
from quire.wire.pulsar.frames import encode_varint
from quire.world.real import real_world

TEXT = """Send messages to a topic: each --messages, each file, or standard input.

Standard input and JSON files have one message per line. Exit codes: 0 all messages have receipts, 1 the cluster refuses
or does not answer, 2 flags or input cannot be used, 130 interrupted; then everything that was read is sent before.
"""
_READ_BYTES = 256 << 10
_RUN_MESSAGES = 1000
"""Messages that are packed at once."""
INPUTS = ("lines", "json", "whole")


@dataclass(frozen=True, kw_only=True)
class ProduceFlags(ClusterAccess):
    """Flags of `quire produce`."""

    topic: str = argument("Topic, such as orders or persistent://public/default/orders.", name="TOPIC")
    messages: tuple[str, ...] = flag((), "--messages", "-m", help="Messages, divided by the separator.")
    files: tuple[str, ...] = flag((), "--files", "-f", help="Files, divided by commas; each is one message.")
    input: str = flag("", "--input", help="lines, json (a JSON object per line) or whole (one message).")
    num_produce: int = flag(1, "--num-produce", "-n", help="Times to send the messages or files.")
    rate: float = flag(0.0, "--rate", "-r", help="Messages per second; 0: as fast as possible.")
    separator: str = flag(
        "", "--separator", "-s", help="Text between messages (default: a comma in -m, else a line end)."
    )
    properties: tuple[str, ...] = flag((), "--properties", "-p", help="Properties of each message: k1=v1,k2=v2.")
    key: str = flag("", "--key", "-k", help="Key of each message.")
    event_time: int = flag(0, "--event-time", help="Event time of each message, in ms since 1970.")
    value_schema: str = flag("bytes", "--value-schema", "-vs", help=SCHEMA_HELP)
    disable_batching: bool = flag(False, "--disable-batching", "-db", help="Send each message by itself.")
    chunking: bool = flag(False, "--chunking", "-c", help="Cut messages above the broker's limit; implies -db.")
    compression: str = flag("none", "--compression", "-z", help=f"One of {', '.join(KINDS)}.")
    producer_name: str = flag("", "--producer-name", "-pn", help="Name of the producer.")


def run_produce(flags: ProduceFlags) -> int:
    """Run the command, and return its exit code."""
    return guarded("produce", lambda: run_async(partial(_produce, flags)))


async def _produce(flags: ProduceFlags) -> int:
    topic = full_name(flags.topic)
    source = MessageInput(flags)
    schema = schema_of(flags.value_schema)
    sent = SentCount()
    try:
        async with stoppable() as stop, open_client(real_world(), flags.brokers(), flags.client_options()) as client:
            outlet = TopicOutlet(client, topic, flags, sent)
            await outlet.open(schema)
            with stop.scope:
                await _send_all(flags, source, outlet)
            await outlet.flush()
            return INTERRUPTED if stop.interrupted else 0
    finally:
        print(f"{sent.count} messages successfully produced", file=sys.stderr)


async def _send_all(flags: ProduceFlags, source: MessageInput, outlet: TopicOutlet) -> None:
    schedule = Schedule(time.monotonic(), 1 / flags.rate if flags.rate > 0 else 0.0, 0)
    with PaceTimer() as timer:
        async for run in source.runs():
            at = 0
            while at < len(run):
                if flags.rate > 0:
                    await timer.until(schedule.next)
                count = len(schedule.take(time.monotonic(), min(len(run) - at, _RUN_MESSAGES)))
                with trio.CancelScope(shield=True):  # a signal does not divide what was taken from the input
                    await outlet.send(run[at : at + count])
                at += count


class SentCount:
    """Number of messages with a receipt."""

    def __init__(self) -> None:
        self.count = 0


class MessageInput:
    """The messages of the flags, or of standard input. Raises FlagsError for flags that contradict each other."""

    def __init__(self, flags: ProduceFlags) -> None:
        if flags.messages and flags.files:
            raise FlagsError("--messages and --files are both given; give one of them")
        if flags.num_produce < 1:
            raise FlagsError(f"--num-produce is {flags.num_produce}, and must be above 0")
        self._stdin = not flags.messages and not flags.files
        self._files = [name for each in flags.files for name in each.split(",") if name]
        default = "whole" if self._files else "lines"
        self._input = flags.input or default
        if self._input not in INPUTS:
            raise FlagsError(f"--input {flags.input} is none of {', '.join(INPUTS)}")
        if self._stdin and flags.num_produce > 1:
            raise FlagsError("--num-produce needs --messages or --files, because standard input is read once")
        separator = unescape(flags.separator) or ("," if flags.messages else "\n")
        self._separator = separator.encode()
        self._times = flags.num_produce
        self._common = MessageRecord(
            value=None,
            key=flags.key.encode() if flags.key else None,
            properties=properties_of(flags.properties),
            event_ms=flags.event_time,
        )
        if flags.event_time < 0:
            raise FlagsError(f"--event-time is {flags.event_time} ms, which is before 1970")
        self._texts = [part for each in flags.messages for part in each.encode().split(self._separator)]
        for name in self._files:
            if not os.access(name, os.R_OK) or Path(name).is_dir():
                raise FlagsError(f"the file {name} cannot be read")

    async def runs(self) -> AsyncIterator[list[MessageRecord]]:
        """Yield messages in runs of what is there."""
        if self._stdin:
            async for run in self._cut(sys.stdin.fileno(), "standard input", self._input):
                yield run
        for _ in range(self._times):
            if self._texts:
                yield [self._record(text, f"message {number}") for number, text in enumerate(self._texts, 1)]
            for name in self._files:
                descriptor = os.open(name, os.O_RDONLY)
                try:
                    async for run in self._cut(descriptor, name, self._input):
                        yield run
                finally:
                    os.close(descriptor)

    async def _cut(self, descriptor: int, name: str, kind: str) -> AsyncIterator[list[MessageRecord]]:
        number = 0
        if kind == "whole":
            yield [self._record(b"".join([part async for part in _parts(descriptor)]), name)]
            return
        cutter = InputCutter(b"\n" if kind == "json" else self._separator)
        async for part in _parts(descriptor):
            pieces = list(cutter.feed(part))
            if pieces:
                yield [self._record(each, f"{name}, line {line}") for line, each in enumerate(pieces, number + 1)]
            number += len(pieces)
        rest = [self._record(piece, f"{name}, line {number + 1}") for piece in cutter.end()]
        if rest:
            yield rest

    def _record(self, text: bytes, where: str) -> MessageRecord:
        common = self._common
        if self._input != "json":
            return replace(common, value=text)
        found = from_json(text, where)
        return replace(
            found,
            key=common.key if found.key is None else found.key,
            properties=found.properties + tuple(pair for pair in common.properties if pair not in found.properties),
            event_ms=found.event_ms or common.event_ms,
        )


async def _parts(descriptor: int) -> AsyncIterator[bytes]:
    while part := await trio.to_thread.run_sync(os.read, descriptor, _READ_BYTES, abandon_on_cancel=True):
        yield part


def properties_of(texts: Iterable[str]) -> Pairs:
    """Return the properties in texts k1=v1,k2=v2. Raises FlagsError."""
    pairs = []
    for part in (part for each in texts for part in each.split(",") if part):
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise FlagsError(f"the property {part!r} has not the form name=value")
        pairs.append((name, value))
    return tuple(pairs)


class TopicOutlet:
    """Producers of a topic, one for each of its partitions."""

    def __init__(self, client: Client, topic: str, flags: ProduceFlags, sent: SentCount) -> None:
        if flags.compression not in KINDS:
            raise FlagsError(f"--compression {flags.compression} is none of {', '.join(KINDS)}")
        self._client = client
        self._topic = topic
        self._flags = flags
        self._sent = sent
        self._producers: list[Producer] = []
        self._waiting: list[list[int]] = []
        """Messages in each entry without receipt, by producer."""
        self._turn = 0
        self._chunked = 0
        self._version = b""

    async def open(self, schema: Any) -> None:
        """Open the producers. Raises ClientError."""
        count = await self._client.partitions(self._topic, create=True)
        topics = [f"{self._topic}-partition-{number}" for number in range(count)] or [self._topic]
        for topic in topics:
            producer = await self._client.producer(topic, name=self._flags.producer_name, schema=schema)
            waiting: list[int] = []
            producer.on_receipts = partial(self._received, waiting)
            self._producers.append(producer)
            self._waiting.append(waiting)
        if self._producers[0].schema_version:
            version = self._producers[0].schema_version
            self._version = b"\x82\x01" + encode_varint(len(version)) + version

    async def send(self, records: Sequence[MessageRecord]) -> None:
        """Queue messages: those with a key in the partition of the key, others in the partitions in turn."""
        count = len(self._producers)
        self._turn = (self._turn + 1) % count
        if count == 1:
            await self._send_to(0, records)
            return
        parts: dict[int, list[MessageRecord]] = {}
        for record in records:
            place = self._turn if record.key is None else partition_of(record.key, count)
            parts.setdefault(place, []).append(record)
        for place, part in parts.items():
            await self._send_to(place, part)

    async def _send_to(self, place: int, records: Sequence[MessageRecord]) -> None:
        packed = self._packed(records, self._producers[place])
        if self._version:
            packed = [replace(each, fields=each.fields + self._version) for each in packed]
        self._waiting[place] += self._counts(packed)
        await self._producers[place].send(packed)

    def _counts(self, packed: Sequence[Packed]) -> list[int]:
        """Return the messages that each entry completes: of a chunked message only the last one does."""
        return [each.count for each in packed] if not self._flags.chunking else self._ends

    def _packed(self, records: Sequence[MessageRecord], producer: Producer) -> list[Packed]:
        flags = self._flags
        size_max = producer.message_size_max
        try:
            if flags.chunking:
                return self._chunks(records, producer.name, size_max)
            return pack(
                [each.value for each in records],
                [each.key for each in records] if any(each.key is not None for each in records) else None,
                [each.properties for each in records] if any(each.properties for each in records) else None,
                [each.event_ms for each in records] if any(each.event_ms for each in records) else None,
                batch=not flags.disable_batching,
                compression=flags.compression,
                message_size_max=size_max,
            )
        except ValueError as error:
            raise FlagsError(f"{error}; --chunking sends it in pieces") from None

    def _chunks(self, records: Sequence[MessageRecord], name: str, size_max: int) -> list[Packed]:
        packed: list[Packed] = []
        self._ends: list[int] = []
        for each in records:
            self._chunked += 1
            pieces = pack_chunks(
                each.value,
                each.key,
                each.properties,
                each.event_ms,
                compression=self._flags.compression,
                message_size_max=size_max,
                uuid=f"{name}-{self._chunked}-{time.time_ns():x}",
            )
            packed += pieces
            self._ends += [0] * (len(pieces) - 1) + [1]
        return packed

    def _received(self, waiting: list[int], entries: int) -> None:
        self._sent.count += sum(waiting[:entries])
        del waiting[:entries]

    async def flush(self) -> None:
        """Wait for all receipts. Raises ClientError."""
        for producer in self._producers:
            await producer.flush()

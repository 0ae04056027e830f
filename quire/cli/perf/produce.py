"""`quire perf produce`: messages at a rate, and how long their receipts take.

The latency of a message runs from the moment at which it is handed to its producer, as in pulsar-perf: the wait in an
open batch counts, and time for which this program itself woke up late does not (the last line has it). With
--from-schedule the latency runs from the moment at which the rate has the message sent, which also counts time for
which the load was held up. This program wakes up once per batch: a batch is open for its window from its first message
on, as in the Java client, and the moments in between are those of the rate.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import trio

from quire.cli.messages.access import guarded
from quire.cli.messages.chunking import pack_chunks
from quire.cli.messages.stopping import run_async
from quire.cli.perf import lines
from quire.cli.perf.flags import ProducerFlags
from quire.cli.perf.histogram import LatencyHistogram
from quire.cli.perf.meter import HOUR_US, LoadMeter
from quire.cli.perf.pacing import PaceTimer, Schedule
from quire.cli.perf.payloads import Keys, Payloads, from_file, letters
from quire.cli.perf.running import DRAIN_S, LoadSession, Metered, kept_client, measure
from quire.cli.perf.topics import create_partitioned, parts_of
from quire.client.client import Client, Producer, TransactionClient
from quire.client.packing import Packed, pack
from quire.client.routing import partition_of
from quire.client.transactions import Transaction, TransactionProducer
from quire.wire.pulsar.frames import encode_varint

TEXT = """Measure producers, with the flags and closing lines of pulsar-perf.

A latency runs from the moment at which a message is handed to its producer to its receipt.

Exit codes: 0 done, 1 the cluster refuses or does not answer, 2 flags cannot be used, 130 interrupted."""
PENDING_BYTES_MAX = 64 << 20
"""Bytes without receipt, the memory limit of the Java client."""
_OVERHEAD_BYTES = 32
"""Bytes of a message in a batch besides its payload."""


def run_perf_produce(flags: ProducerFlags) -> int:
    """Run the command, and return its exit code."""
    return guarded("perf produce", lambda: run_async(partial(_produce, flags)))


async def _produce(flags: ProducerFlags) -> int:
    flags.check()
    load = ProduceLoad(flags, flags.names(), payloads_of(flags))
    run = LoadSession("quire perf produce", [load.metered], flags.histogram_file, load.interval_lines, load.closing)
    if flags.partitions is not None:
        await create_partitioned(flags, flags.names(), flags.partitions)
    return await measure(flags, run, partial(load.work, run))


def payloads_of(flags: ProducerFlags) -> Payloads:
    """Return the payloads of the flags. Raises FlagsError."""
    rng = random.Random(0)
    if flags.payload_file:
        return Payloads(from_file(flags.payload_file, flags.payload_delimiter), rng)
    return Payloads([letters(flags.size, rng)], rng)


class ProduceLoad:
    """Producers of all topics, in one or more clients."""

    def __init__(self, flags: ProducerFlags, topics: Sequence[str], payloads: Payloads) -> None:
        self.flags = flags
        self.topics = topics
        self.payloads = payloads
        self.meter = LoadMeter(HOUR_US, 0.001)
        if flags.expected_interval:
            self.meter.expected_interval = int(1e6 / flags.rate)
        self.metered = Metered("produced", self.meter, self._line)
        self.warm_at = 0.0
        self.opened = self.not_opened = self.ended = self.not_ended = 0
        self._ended_before = 0
        self._asked_at = time.monotonic()

    async def work(self, run: LoadSession) -> None:
        """Open all clients and producers, send, and wait for the receipts. Raises ClientError."""
        flags = self.flags
        lanes: list[ProducerLane] = []
        async with AsyncExitStack() as clients:
            for _ in range(flags.threads):
                client = await clients.enter_async_context(kept_client(flags))
                transactions = await client.transactions() if flags.txn_enable else None
                for topic in self.topics:
                    for _ in range(flags.num_producers):
                        name = f"{flags.producer_name}{flags.separator}{len(lanes)}" if flags.producer_name else ""
                        lanes.append(await ProducerLane.open(self, client, topic, name, transactions))
            run.start()
            self.warm_at = time.monotonic() + flags.warmup_time
            await self._send(run, lanes)

    async def _send(self, run: LoadSession, lanes: Sequence[ProducerLane]) -> None:
        """Run all lanes. When they are done, or cancelled, wait for receipts that are still to come."""
        count = len(lanes)
        interval = count / self.flags.rate if self.flags.rate > 0 else 0.0
        start = time.monotonic()
        total = self.flags.num_messages
        try:
            async with trio.open_nursery() as nursery:
                for number, lane in enumerate(lanes):
                    share = total // count + (number < total % count) if total > 0 else 0
                    if total <= 0 or share:
                        schedule = Schedule(start + number * interval / count, interval, share)
                        nursery.start_soon(lane.run, run, schedule)
        finally:
            with trio.move_on_after(DRAIN_S, shield=True):
                for lane in lanes:
                    await lane.flush()

    def received(self, moments: Sequence[float], size: int) -> None:
        """Count messages that have their receipts."""
        meter = self.meter
        meter.messages += len(moments)
        meter.size_bytes += size
        now = time.monotonic()
        if now > self.warm_at:
            latencies = meter.latencies
            for moment in moments:
                latencies[int((now - moment) * 1e6)] += 1

    def _line(self, counted: lines.Throughput, found: LatencyHistogram) -> str:
        return lines.produced(self.meter.messages, counted, found)

    def interval_lines(self) -> list[str]:
        """Return the line about transactions of an interval, if there are any."""
        if not self.flags.txn_enable:
            return []
        now = time.monotonic()
        rate = (self.ended - self._ended_before) / max(now - self._asked_at, 1e-9)
        self._asked_at, self._ended_before = now, self.ended
        return [lines.transactions_in_interval(self.ended, self.not_ended, rate)]

    def closing(self) -> list[str]:
        """Return the closing lines."""
        whole = self.meter.total()
        found = []
        if self.flags.txn_enable:
            rate = (self.ended + self.not_ended) / whole.seconds
            found.append(lines.transactions_at_end(self.ended, self.not_ended, self.opened, self.not_opened, rate))
        found.append(lines.aggregated(whole, sent=True))
        return [*found, lines.aggregated_latency_us(self.meter.whole)]


class ProducerLane:
    """One producer of a topic, which is a producer for each partition, taken in turns."""

    def __init__(
        self, load: ProduceLoad, producers: Sequence[Producer], transactions: TransactionClient | None
    ) -> None:
        self._load = load
        self._flags = load.flags
        self._producers = producers
        self._pending: list[deque[tuple[Sequence[float], int]]] = [deque() for _ in producers]
        """Moments and bytes of each entry without receipt, by producer."""
        for producer, pending in zip(producers, self._pending, strict=True):
            producer.on_receipts = partial(self._receipts, pending)
        self._transactions = transactions
        self._transaction: Transaction | None = None
        self._in_transaction = 0
        self._turn = 0
        self._outstanding = 0
        self._room = trio.Event()
        self._rng = random.Random(1)
        self._keys = Keys(load.flags.key_mode, self._rng)
        self._numbers = 0

    @classmethod
    async def open(
        cls, load: ProduceLoad, client: Client, topic: str, name: str, transactions: TransactionClient | None
    ) -> ProducerLane:
        """Open the producers. Raises ClientError."""
        producers: list[Producer] = []
        for part in await parts_of(client, topic, create=True):
            bounds: dict[str, Any] = {"pending_bytes_max": PENDING_BYTES_MAX, "pending_max": 100_000}
            if transactions is not None:
                producers.append(await client.transaction_producer(part, name=name, **bounds))
            else:
                producers.append(await client.producer(part, name=name, **bounds))
        return cls(load, producers, transactions)

    async def run(self, run: LoadSession, schedule: Schedule) -> None:
        """Send until the schedule is done. Raises ClientError."""
        flags = self._flags
        window_s = max(flags.batch_time_window, 0) / 1000 if flags.batching and flags.rate > 0 else 0.0
        size = self._load.payloads.size_max + _OVERHEAD_BYTES
        count_max = max(1, min(flags.batch_max_messages, flags.batch_max_bytes // size))
        due = 0.0
        with PaceTimer() as timer:
            while not schedule.done:
                if flags.rate > 0:
                    # A full batch is sent when its last message is due, another one at the end of its window.
                    due = schedule.due(count_max, window_s)
                    await timer.until(due)
                if self._transactions is not None:
                    count_max_now = min(count_max, flags.txn_messages - self._in_transaction)
                else:
                    count_max_now = count_max
                await self._wait_for_room()
                now = time.monotonic()
                moments = schedule.take(now, count_max_now)
                if not moments:
                    continue
                if flags.rate > 0:
                    run.late_s = max(run.late_s, now - due)
                    if not flags.from_schedule:
                        moments = [min(moment + now - due, now) for moment in moments]
                await self._send(moments)

    async def _wait_for_room(self) -> None:
        bound = self._flags.max_outstanding
        while bound > 0 and self._outstanding >= bound:
            self._room = trio.Event()
            await self._room.wait()

    async def _send(self, moments: list[float]) -> None:
        count = len(moments)
        values = self._load.payloads.take(count)
        keys = self._keys.take(count)
        events = [time.time_ns() // 1_000_000] * count if self._flags.set_event_time else None
        if self._transactions is not None:
            await self._enter(self._transactions)
        self._turn = (self._turn + 1) % len(self._producers)
        if keys is None or len(self._producers) == 1:
            await self._send_to(self._turn, moments, values, keys, events)
        else:
            rows: dict[int, list[int]] = {}
            for row, key in enumerate(keys):
                rows.setdefault(partition_of(key, len(self._producers)), []).append(row)
            for place, part in rows.items():
                await self._send_to(
                    place,
                    [moments[row] for row in part],
                    [values[row] for row in part],
                    [keys[row] for row in part],
                    None if events is None else [events[row] for row in part],
                )
        if self._transactions is not None:
            self._in_transaction += count
            if self._in_transaction >= self._flags.txn_messages:
                await self._end()

    async def _send_to(
        self, place: int, moments: list[float], values: list[bytes], keys: list[str] | None, events: list[int] | None
    ) -> None:
        producer = self._producers[place]
        packed, ends = self._packed(producer, values, keys, events)
        pending = self._pending[place]
        at = 0
        for ended in ends:
            stop = at + ended
            pending.append((moments[at:stop], sum(map(len, values[at:stop]))))
            at = stop
        self._outstanding += len(moments)
        if self._transaction is not None:
            assert isinstance(producer, TransactionProducer)
            await self._transaction.publishes_to(producer.topic)
            await producer.send_in(self._transaction.id, packed)
        else:
            await producer.send(packed)

    def _packed(
        self, producer: Producer, values: list[bytes], keys: list[str] | None, events: list[int] | None
    ) -> tuple[list[Packed], list[int]]:
        """Return entries, and how many messages each one completes."""
        flags = self._flags
        compression = flags.compression.lower()
        if flags.chunking:
            packed: list[Packed] = []
            ends: list[int] = []
            for row, value in enumerate(values):
                self._numbers += 1
                pieces = pack_chunks(
                    value,
                    keys[row].encode() if keys else None,
                    (),
                    events[row] if events else 0,
                    compression=compression,
                    message_size_max=producer.message_size_max,
                    uuid=f"{producer.name}-{self._numbers}-{time.time_ns():x}",
                )
                packed += pieces
                ends += [0] * (len(pieces) - 1) + [1]
        else:
            packed = pack(
                values,
                keys,
                None,
                events,
                batch=flags.batching,
                compression=compression,
                batch_messages_max=flags.batch_max_messages,
                batch_bytes_max=flags.batch_max_bytes,
                message_size_max=producer.message_size_max,
            )
            ends = [each.count for each in packed]
        if flags.delay or flags.delay_range:
            packed = [self._delayed(each) for each in packed]
        return packed, ends

    def _delayed(self, packed: Packed) -> Packed:
        low, high = self._flags.delays()
        at = time.time_ns() // 1_000_000 + self._rng.randrange(low, high) * 1000
        return replace(packed, fields=packed.fields + b"\x98\x01" + encode_varint(at))

    def _receipts(self, pending: deque[tuple[Sequence[float], int]], entries: int) -> None:
        for _ in range(entries):
            moments, size = pending.popleft()
            self._outstanding -= len(moments)
            self._load.received(moments, size)
        if not self._room.is_set():
            self._room.set()

    # Transactions

    async def _enter(self, transactions: TransactionClient) -> None:
        if self._transaction is None:
            try:
                self._transaction = await transactions.begin(timeout_s=self._flags.txn_timeout)
            except Exception:
                self._load.not_opened += 1
                raise
            self._load.opened += 1

    async def _end(self) -> None:
        """End the transaction when its messages have their receipts."""
        transaction, self._transaction = self._transaction, None
        assert transaction is not None
        for producer in self._producers:
            await producer.flush()
        try:
            await (transaction.abort() if self._flags.abort else transaction.commit())
        except Exception:
            self._load.not_ended += 1
            raise
        self._in_transaction = 0
        self._load.ended += 1

    async def flush(self) -> None:
        """Wait for receipts, and end an open transaction. Raises ClientError."""
        for producer in self._producers:
            await producer.flush()
        if self._transaction is not None:
            await self._end()

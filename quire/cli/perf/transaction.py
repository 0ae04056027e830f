"""`quire perf transaction`: receive, acknowledge and produce in transactions, and how long each takes."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import trio

from quire.cli.messages.access import full_name, guarded
from quire.cli.messages.consume import POSITIONS, choose, type_of
from quire.cli.messages.stopping import run_async
from quire.cli.perf import lines
from quire.cli.perf.flags import TransactionFlags
from quire.cli.perf.histogram import LatencyHistogram
from quire.cli.perf.lines import TransactionCounts
from quire.cli.perf.meter import HOUR_US, LoadMeter
from quire.cli.perf.pacing import PaceTimer, Schedule
from quire.cli.perf.payloads import letters
from quire.cli.perf.running import LoadSession, Metered, kept_client, measure
from quire.cli.perf.topics import create_partitioned, parts_of
from quire.client.client import Client, Consumer, ConsumerOptions, TransactionClient
from quire.client.errors import ClientError
from quire.client.packing import pack
from quire.client.transactions import Transaction, TransactionProducer
from quire.wire.pulsar.metadata import batch_counts

TEXT = """Measure transactions, with the flags and closing lines of pulsar-perf.

Each transaction receives and acknowledges messages of --topics-c, sends messages to --topics-p, and is committed; the
next one of the same thread begins after that. An entry that is a batch is acknowledged, as a whole, when all of its
messages were taken. Exit codes: 0 done, 1 the cluster refuses or does not answer, 2 flags cannot be used, 130
interrupted, with all lines."""
SIZE = 1024
"""Bytes of a message, as in pulsar-perf."""
_DRAIN_S = 5.0


def run_perf_transaction(flags: TransactionFlags) -> int:
    """Run the command, and return its exit code."""
    return guarded("perf transaction", lambda: run_async(partial(_transaction, flags)))


async def _transaction(flags: TransactionFlags) -> int:
    flags.check()
    load = TransactionLoad(flags)
    sends = Metered("sent", load.sends, tag="send")
    run = LoadSession(
        "quire perf transaction", [sends, Metered("acknowledged", load.acks, tag="ack")], closing=load.closing
    )
    sends.line = load.line
    if flags.partitions is not None:
        await create_partitioned(flags, load.sinks, flags.partitions)
    return await measure(flags, run, partial(load.work, run))


class TransactionLoad:
    """Threads of transactions on one client, each with producers and consumers of its own."""

    def __init__(self, flags: TransactionFlags) -> None:
        """Raises FlagsError."""
        self.flags = flags
        self.sources = [full_name(each) for each in _divided(flags.topics_c, "test-consume")]
        self.sinks = [full_name(each) for each in _divided(flags.topics_p, "test-produce")]
        self.subscriptions = flags.subscription_names()
        self.options = ConsumerOptions(
            type=type_of(flags.subscription_type),
            earliest=choose(POSITIONS, flags.subscription_position, "--subscription-position"),
            window=flags.receiver_queue_size,
            replicated=flags.replicated,
        )
        self.payload = letters(SIZE, random.Random(0))
        self.sends = LoadMeter(HOUR_US, 0.001)
        self.acks = LoadMeter(HOUR_US, 0.001)
        self.counts = TransactionCounts()
        self._begun = 0
        self._ended_before = 0
        self._asked_at = time.monotonic()
        self._schedule = Schedule(time.monotonic(), 1 / flags.txn_rate if flags.txn_rate > 0 else 0.0, 0)

    async def work(self, run: LoadSession) -> None:
        """Run all threads. Raises ClientError."""
        async with kept_client(self.flags) as client:
            transactions = None if self.flags.txn_disable else await client.transactions()
            threads = [await Thread.open(self, client, transactions) for _ in range(self.flags.threads)]
            run.start()
            try:
                async with trio.open_nursery() as nursery:
                    for thread in threads:
                        nursery.start_soon(thread.run)
            finally:
                with trio.move_on_after(_DRAIN_S, shield=True):
                    for thread in threads:
                        await thread.close()

    def more(self, **counted: int) -> None:
        """Add to the counts."""
        self.counts = replace(
            self.counts, **{name: getattr(self.counts, name) + value for name, value in counted.items()}
        )

    async def admitted(self, timer: PaceTimer) -> bool:
        """Wait until the rate allows another transaction; False: there were enough."""
        if 0 < self.flags.number_txn <= self._begun:
            return False
        self._begun += 1
        if self.flags.txn_rate > 0:
            moment = self._schedule.next
            self._schedule.skip(1)
            await timer.until(moment)
        return True

    def line(self, counted: lines.Throughput, found: LatencyHistogram) -> str:
        """Return the line of an interval. The meter of acknowledgements has its own interval."""
        now = time.monotonic()
        rate = (self.counts.ended - self._ended_before) / max(now - self._asked_at, 1e-9)
        self._asked_at, self._ended_before = now, self.counts.ended
        total = self.counts.ended + self.counts.not_ended
        return lines.transactions(total, rate, found, self.acks.interval, tasks=self.flags.txn_disable)

    def closing(self) -> list[str]:
        """Return the closing lines."""
        seconds = self.sends.total().seconds
        return [
            lines.aggregated_transactions(self.counts, seconds, tasks=self.flags.txn_disable),
            lines.aggregated_transaction_latency(self.acks.whole, acks=True),
            lines.aggregated_transaction_latency(self.sends.whole, acks=False),
        ]


class Thread:
    """One transaction after the other."""

    def __init__(
        self,
        load: TransactionLoad,
        transactions: TransactionClient | None,
        producers: Sequence[Sequence[TransactionProducer]],
        sources: Sequence[MessageSource],
    ) -> None:
        self._load = load
        self._transactions = transactions
        self._producers = producers
        self._sources = sources
        self._turn = 0

    @classmethod
    async def open(cls, load: TransactionLoad, client: Client, transactions: TransactionClient | None) -> Thread:
        """Open producers and consumers. Raises ClientError."""
        producers = [
            [await client.transaction_producer(part) for part in await parts_of(client, sink, create=True)]
            for sink in load.sinks
        ]
        sources: list[MessageSource] = []
        for topic in load.sources:
            parts = await parts_of(client, topic, create=True)
            for name in load.subscriptions:
                sources.append(MessageSource([await client.consumer(part, name, load.options) for part in parts]))
        return cls(load, transactions, producers, sources)

    async def run(self) -> None:
        """Run transactions until there were enough. Raises ClientError."""
        load = self._load
        with PaceTimer() as timer:
            while await load.admitted(timer):
                transaction = await self._begin()
                for source in self._sources:
                    for _ in range(load.flags.consumed):
                        await self._acknowledge(source, transaction)
                for parts in self._producers:
                    self._turn += 1
                    await self._produce(parts[self._turn % len(parts)], transaction)
                await self._end(transaction)

    async def _begin(self) -> Transaction | None:
        if self._transactions is None:
            self._load.more(opened=1)
            return None
        try:
            transaction = await self._transactions.begin(timeout_s=self._load.flags.txn_timeout)
        except ClientError:
            self._load.more(not_opened=1)
            raise
        self._load.more(opened=1)
        return transaction

    async def _acknowledge(self, source: MessageSource, transaction: Transaction | None) -> None:
        taken = await source.take()
        if taken is None:
            return
        consumer, ids, count = taken
        begun = time.monotonic()
        try:
            if transaction is not None:
                await transaction.acknowledges(consumer.topic, consumer.subscription)
            await consumer.confirm([ids], transaction=None if transaction is None else transaction.id)
        except ClientError:
            self._load.more(not_acknowledged=count)
            raise
        self._load.acks.latencies[int((time.monotonic() - begun) * 1e6)] += 1
        self._load.acks.messages += count
        self._load.more(acknowledged=count)

    async def _produce(self, producer: TransactionProducer, transaction: Transaction | None) -> None:
        load = self._load
        count = load.flags.produced
        if not count:
            return
        begun = time.monotonic()
        packed = pack([load.payload] * count)
        try:
            if transaction is not None:
                await transaction.publishes_to(producer.topic)
                await producer.send_in(transaction.id, packed)
            else:
                await producer.send(packed)
            await producer.flush()
        except ClientError:
            load.more(not_sent=count)
            raise
        load.sends.latencies[int((time.monotonic() - begun) * 1e6)] += count
        load.sends.messages += count
        load.sends.size_bytes += count * SIZE
        load.more(sent=count)

    async def _end(self, transaction: Transaction | None) -> None:
        if transaction is not None:
            try:
                await (transaction.abort() if self._load.flags.abort else transaction.commit())
            except ClientError:
                self._load.more(not_ended=1)
                raise
        self._load.more(ended=1)

    async def close(self) -> None:
        """Close producers and consumers."""
        for parts in self._producers:
            for producer in parts:
                await producer.close()
        for source in self._sources:
            await source.close()


class MessageSource:
    """Messages of the partitions of a topic, taken one by one."""

    def __init__(self, consumers: Sequence[Consumer]) -> None:
        self._consumers = consumers
        self._waiting: deque[tuple[Consumer, tuple[int, int], int]] = deque()
        """Consumer, entry and messages of each entry that was received."""
        self._taken = 0
        """Messages taken of the first entry."""

    async def take(self) -> tuple[Consumer, tuple[int, int], int] | None:
        """Take one message; return its entry if that was the last one of it, with the messages in it."""
        while not self._waiting:
            async with trio.open_nursery() as nursery:
                for consumer in self._consumers:
                    nursery.start_soon(self._receive, consumer, nursery.cancel_scope)
        self._taken += 1
        if self._taken < self._waiting[0][2]:
            return None
        self._taken = 0
        return self._waiting.popleft()

    async def _receive(self, consumer: Consumer, others: trio.CancelScope) -> None:
        found = await consumer.receive()
        places = zip(found.ledger_ids, found.entry_ids, strict=True)
        counts = batch_counts(found.entries)
        self._waiting += [(consumer, place, count) for place, count in zip(places, counts, strict=True)]
        others.cancel()

    async def close(self) -> None:
        for consumer in self._consumers:
            await consumer.close()


def _divided(texts: Sequence[str], default: str) -> list[str]:
    return [name for each in texts for name in each.split(",") if name] or [default]

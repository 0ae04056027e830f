"""`quire perf consume` and `quire perf read`: messages as they come, and their age since they were published."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial

import trio

from quire.cli.messages.access import guarded
from quire.cli.messages.consume import POSITIONS, choose, start_of, type_of
from quire.cli.messages.stopping import run_async
from quire.cli.perf import lines
from quire.cli.perf.flags import ConsumerFlags, ReaderFlags
from quire.cli.perf.histogram import LatencyHistogram
from quire.cli.perf.meter import TEN_DAYS_MS, LoadMeter
from quire.cli.perf.pacing import PaceTimer, Schedule
from quire.cli.perf.running import DRAIN_S, LoadSession, Metered, kept_client, measure
from quire.cli.perf.topics import parts_of
from quire.client.client import Client, Consumer, ConsumerOptions, Reader
from quire.client.consumer import ACKNOWLEDGED_MAX
from quire.client.unpacking import Messages, Opener

_CODES = """A latency is the age of a message: the ms since it was published, by the clocks of both machines.

Exit codes: 0 done, 1 the cluster refuses or does not answer, 2 flags cannot be used, 130 interrupted."""
CONSUME_TEXT = f"""Measure consumers, with the flags and closing lines of pulsar-perf.

{_CODES}"""
READ_TEXT = f"""Measure readers, with the flags and closing lines of pulsar-perf.

{_CODES}"""


def run_perf_consume(flags: ConsumerFlags) -> int:
    """Run `quire perf consume`, and return its exit code."""
    return guarded("perf consume", lambda: run_async(partial(_consume, flags)))


def run_perf_read(flags: ReaderFlags) -> int:
    """Run `quire perf read`, and return its exit code."""
    return guarded("perf read", lambda: run_async(partial(_read, flags)))


async def _consume(flags: ConsumerFlags) -> int:
    flags.check()
    load = ConsumeLoad(flags, flags.names())
    run = LoadSession("quire perf consume", [load.metered], flags.histogram_file, closing=load.closing)

    async def work() -> None:
        async with kept_client(flags) as client:
            await load.open(client)
            run.start()
            await load.work()

    return await measure(flags, run, work)


async def _read(flags: ReaderFlags) -> int:
    flags.check()
    topics = flags.names()
    start, _ = start_of(flags.start_message_id, inclusive=True)
    receiving = LoadReceiving(flags.rate, flags.num_messages, reader=True)
    run = LoadSession("quire perf read", [receiving.metered], flags.histogram_file, closing=receiving.closing)

    async def work() -> None:
        async with kept_client(flags) as client:
            parts = [part for topic in topics for part in await parts_of(client, topic, create=False)]
            readers = [await client.reader(part, start, window=flags.receiver_queue_size) for part in parts]
            run.start()
            async with trio.open_nursery() as nursery:
                for reader in readers:
                    nursery.start_soon(receiving.receive, reader, nursery.cancel_scope)

    return await measure(flags, run, work)


class LoadReceiving:
    """Counting of messages that consumers or readers receive, and their slowing down to a rate."""

    def __init__(self, rate: float, count_max: int, *, reader: bool) -> None:
        self.meter = LoadMeter(TEN_DAYS_MS, 1.0)
        self.metered = Metered("received", self.meter, self._line)
        self.paused = trio.Event()
        """Not set: nothing is received."""
        self.paused.set()
        self._rate = rate
        self._count_max = count_max
        self._reader = reader
        self._schedule = Schedule(time.monotonic(), 1 / rate if rate > 0 else 0.0, 0)

    async def receive(
        self, receiver: Consumer | Reader, whole: trio.CancelScope, acks: Acknowledging | None = None
    ) -> None:
        """Receive until enough was received, and cancel `whole` then. Raises ClientError."""
        opener, messages, meter = Opener(), Messages(), self.meter
        with PaceTimer() as timer:
            while True:
                await self.paused.wait()
                deliveries = await receiver.receive()
                gaps = opener.open(deliveries, messages)
                if gaps:
                    opener.complete(gaps, messages)
                if self._rate > 0:
                    await timer.until(self._schedule.next)
                    self._schedule.skip(len(messages))
                now = time.time_ns() // 1_000_000
                latencies = meter.latencies
                for published in messages.publish_ms:
                    if now >= published:
                        latencies[now - published] += 1
                meter.messages += len(messages)
                meter.size_bytes += sum(len(value) for value in messages.values if value is not None)
                messages.clear()
                if acks is not None:
                    acks.add(zip(deliveries.ledger_ids, deliveries.entry_ids, strict=True))
                if 0 < self._count_max <= meter.messages:
                    whole.cancel()

    def _line(self, counted: lines.Throughput, found: LatencyHistogram) -> str:
        return lines.received(self.meter.messages, counted, found, reader=self._reader)

    def closing(self) -> list[str]:
        """Return the closing lines."""
        return [
            lines.aggregated(self.meter.total(), sent=False),
            lines.aggregated_latency_ms(self.meter.whole),
        ]


class Acknowledging:
    """Acknowledgements of one consumer, gathered for some time."""

    def __init__(self, consumer: Consumer, delay_ms: int) -> None:
        self._consumer = consumer
        self._delay_s = delay_ms / 1000
        self._ids: list[tuple[int, int]] = []

    def add(self, ids: Iterable[tuple[int, int]]) -> None:
        """Acknowledge entries, at once if there is no delay."""
        self._ids += ids
        if self._delay_s <= 0 or len(self._ids) >= ACKNOWLEDGED_MAX:
            self.flush()

    def flush(self) -> None:
        """Send what was gathered."""
        ids, self._ids = self._ids, []
        if ids:
            self._consumer.acknowledge(ids)

    async def run(self) -> None:
        """Flush again and again, if there is a delay."""
        while self._delay_s > 0:
            await trio.sleep(self._delay_s)
            self.flush()


class ConsumeLoad:
    """Consumers of all topics and subscriptions, on one client."""

    def __init__(self, flags: ConsumerFlags, topics: Sequence[str]) -> None:
        """Raises FlagsError."""
        self._flags = flags
        self._topics = topics
        self._subscriptions = flags.subscription_names()
        self._options = ConsumerOptions(
            type=type_of(flags.subscription_type),
            earliest=choose(POSITIONS, flags.subscription_position, "--subscription-position"),
            window=flags.receiver_queue_size,
            replicated=flags.replicated,
        )
        self.receiving = LoadReceiving(flags.rate, flags.num_messages, reader=False)
        self.metered = self.receiving.metered
        self._consumers: list[Consumer] = []

    async def open(self, client: Client) -> None:
        """Open all consumers. Raises ClientError."""
        for topic in self._topics:
            for part in await parts_of(client, topic, create=True):
                for name in self._subscriptions:
                    for _ in range(self._flags.num_consumers):
                        self._consumers.append(await client.consumer(part, name, self._options))

    async def work(self) -> None:
        """Receive until enough was received. Raises ClientError."""
        delay_ms = self._flags.acks_delay_millis
        acknowledging = [Acknowledging(each, delay_ms) for each in self._consumers]
        try:
            async with trio.open_nursery() as nursery:
                for consumer, acks in zip(self._consumers, acknowledging, strict=True):
                    nursery.start_soon(self.receiving.receive, consumer, nursery.cancel_scope, acks)
                    nursery.start_soon(acks.run)
        finally:
            for acks in acknowledging:
                acks.flush()
            with trio.move_on_after(DRAIN_S, shield=True):
                async with trio.open_nursery() as nursery:
                    for consumer in self._consumers:
                        nursery.start_soon(consumer.close)

    def closing(self) -> list[str]:
        """Return the closing lines."""
        return self.receiving.closing()

"""The cost of metrics: a scrape of many loaded topics, and recording in the path of a message.

    scripts/bench metrics [--topics 100000] [--shown 2000] [--runs 200000]

Scrape: a broker in memory with so many topics that each have a subscription, all of which were loaded and some used.
The first scrape, one after a round of rates, and one with another beside it: seconds of CPU, size, longest step of the
event loop (CPU of its thread), growth of memory. Recording: CPU of what is done for a run of one entry and of ten.

Nothing here is a test: the figures are a machine's.
"""

from __future__ import annotations

import gc
import os
import time
from copy import copy
from functools import partial
from pathlib import Path
from typing import Annotated

import trio
import typer

from bookie.journal.group_writer import GroupResult
from bookie.journal.writer import JournalBatch, JournalTimes
from broker.metrics import register
from broker.series.config import MetricsOptions
from broker.series.published import Published
from quire.service.measuring.scrapes import Scrapes
from quire.service.measuring.summaries import LATENCY_MS, Times
from quire.service.metrics import Metrics
from quire.service.programs.command_line import run_command
from quire.service.serve import ConnectionCounts
from quire.wire.pulsar.names import TopicName
from tests.support.steps import Steps
from tests.unit.broker.peers import TOPIC, Room, in_broker


def main() -> int:
    """Run the command line; return the exit code."""
    return run_command(metrics, name="python -m bench.metrics", text=__doc__)


def metrics(
    topics: Annotated[int, typer.Option()] = 100_000,
    shown: Annotated[int, typer.Option()] = MetricsOptions().topics_max,
    runs: Annotated[int, typer.Option()] = 200_000,
) -> int:
    """Print the figures."""
    recording(runs)
    trio.run(scraping, topics, shown)
    return 0


def recording(runs: int) -> None:
    """Print the CPU per run of what the broker and the bookie record."""
    for entries in (1, 10):
        payloads = [b"x" * 100] * entries
        published, everywhere = Published(), Times(LATENCY_MS)
        began = time.process_time()
        for _ in range(runs):
            published.arrived(payloads, 100 * entries)
            published.confirmed(0.0, 0.004, entries, everywhere)
        broker_us = (time.process_time() - began) / runs * 1e6
        print(f"recording a run of {entries:2} entries: broker {broker_us:.2f} us")
    journal, batches, results = JournalTimes(), [JournalBatch(0.0, [])], [GroupResult(1, None, None, True, 4096, 0.001)]
    began = time.process_time()
    for _ in range(runs):
        journal.passed(batches, results, 0.004)
    print(f"recording a pass of the journal: {(time.process_time() - began) / runs * 1e6:.2f} us")


async def scraping(topics: int, shown: int) -> None:
    """Print the figures of scrapes."""
    steps = Steps()
    async with in_broker(instruments=[steps], stats_interval_s=3600) as room:
        await fill(room, topics)
        metrics = Metrics()
        register(metrics, room.broker, ConnectionCounts(), "c", MetricsOptions(topics_max=shown))
        scrapes = Scrapes(metrics.lines)
        gc.collect()
        gc.freeze()
        series = room.broker.series
        assert series is not None
        steps.reset()
        began = time.process_time()
        for _ in series.round():
            await trio.lowlevel.checkpoint()
        print(
            f"round of the rest: {time.process_time() - began:.2f} s CPU, longest step {1000 * steps.longest_s:.1f} ms"
        )
        for name, count in (("one scrape", 1), ("again", 1), ("four together", 4)):
            await trio.sleep(2)
            before = rss_mb()
            await trio.lowlevel.checkpoint()
            steps.reset()
            began = time.process_time()
            sizes: list[int] = []
            async with trio.open_nursery() as nursery:
                for _ in range(count):
                    nursery.start_soon(partial(scrape, scrapes, sizes))
            print(
                f"{name} of {topics} topics, {shown} shown: {time.process_time() - began:.2f} s CPU, "
                f"{sizes[0] / 1e6:.1f} MB each, longest step {1000 * steps.longest_s:.1f} ms ({steps.longest_task}), "
                f"memory {rss_mb() - before:+.1f} MB"
            )


async def scrape(scrapes: Scrapes, sizes: list[int]) -> None:
    """Read one text as a client that takes everything at once."""
    size = index = 0
    with scrapes.text() as text:
        while part := await text.part(index):
            size += len(part)
            index += 1
    sizes.append(size)


async def fill(room: Room, topics: int) -> None:
    """Register copies of a topic that was used under many names."""
    peer = await room.connect()
    await peer.producer()
    await peer.subscribe(permits=1)
    await peer.publish(b"a", b"b")
    topic = await room.topic(TOPIC)
    for number in range(topics - 1):
        other = copy(topic)
        other.name = TopicName.parse(f"{topic.name.full}-{number}")
        room.broker.topics._loaded[other.name.full] = other


def rss_mb() -> float:
    """Return the memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

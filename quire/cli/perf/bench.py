"""`quire bench`: a workload of OpenMessaging's benchmark, with the lines of `quire perf`.

Producers and consumers are those of `quire perf`, in one process, at the workload's numbers. The subscriptions are
Failover, as in that benchmark's driver for Pulsar, from the end on. A workload with a backlog stops its consumers until
the backlog is there, lets them read it, and prints how long that took.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import trio

from quire.cli.messages.access import FlagsError, guarded
from quire.cli.messages.flags import argument, flag
from quire.cli.messages.stopping import run_async
from quire.cli.perf.consume import ConsumeLoad
from quire.cli.perf.flags import ConsumerFlags, HistogramFlags, ProducerFlags
from quire.cli.perf.payloads import Payloads, half_random, letters
from quire.cli.perf.produce import ProduceLoad
from quire.cli.perf.running import DRAIN_S, LoadSession, kept_client, measure
from quire.cli.perf.topics import create_partitioned
from quire.cli.perf.workloads import Workload, workload, workloads

TEXT = """Run a workload of OpenMessaging's benchmark, such as 1-topic-16-partitions-1kb, and print the lines of perf.

A rate of 0 or of 10,000,000 is as fast as possible. Exit codes: 0 done, 1 the cluster refuses or does not answer, 2
flags cannot be used, 130 interrupted, with all lines."""
_ACCESS = (
    "service_url",
    "admin_url",
    "auth_plugin",
    "auth_params",
    "trust_cert_file",
    "tls_cert_file",
    "tls_key_file",
    "tls_allow_insecure",
    "tls_hostname_verification",
    "conf_file",
)
_LEFT = 1000
"""Messages of a backlog at which it counts as read, as in the original."""
_POLL_S = 0.1


@dataclass(frozen=True, kw_only=True)
class BenchFlags(HistogramFlags):
    """Flags of `quire bench`."""

    name: str = argument("Name of the workload; --list alone needs one too, such as all.", name="WORKLOAD")
    list: bool = flag(False, "--list", help="Print the workloads whose names have WORKLOAD in them (all: every one).")
    divide_rate: float = flag(1.0, "--divide-rate", help="Divide the rate and the backlog, for a small machine.")
    minutes: float | None = flag(None, "--minutes", help="Minutes instead of the workload's.")
    topic_prefix: str = flag("", "--topic-prefix", help="Prefix of the topics (default: bench-WORKLOAD-TIME).")


def run_bench(flags: BenchFlags) -> int:
    """Run the command, and return its exit code."""
    return guarded("bench", lambda: _listed(flags) if flags.list else run_async(partial(_bench, flags)))


def _listed(flags: BenchFlags) -> int:
    for each in workloads().values():
        if flags.name == "all" or flags.name in each.name:
            print(
                f"{each.name}: {each.topics} topics of {each.partitions} partitions, {each.size} bytes, "
                f"{each.producers} producers, {each.subscriptions} x {each.consumers} consumers, "
                f"{each.rate or 'unlimited'} msg/s, {each.backlog_gb} GB backlog, {each.minutes} min"
            )
    return 0


async def _bench(flags: BenchFlags) -> int:
    chosen = workload(flags.name)
    if flags.divide_rate <= 0 or (flags.minutes is not None and flags.minutes <= 0):
        raise FlagsError("--divide-rate and --minutes must be above 0")
    if not flags.test_duration:
        minutes = chosen.minutes if flags.minutes is None else flags.minutes
        flags = replace(flags, test_duration=minutes * 60)
    elif flags.minutes is not None:
        raise FlagsError("--minutes and --test-duration are both given; give one of them")
    load = BenchLoad(flags, chosen)
    if chosen.partitions > 1:
        await create_partitioned(flags, load.topics, chosen.partitions)
    metered = [load.producing.metered, load.consuming.metered]
    metered[0].tag, metered[1].tag = "produced", "received"
    run = LoadSession(f"quire bench {chosen.name}", metered, flags.histogram_file, closing=load.closing)
    return await measure(flags, run, partial(load.work, run))


class BenchLoad:
    """Producers and consumers of a workload."""

    def __init__(self, flags: BenchFlags, chosen: Workload) -> None:
        """Raises FlagsError."""
        self._flags = flags
        self._chosen = chosen
        prefix = flags.topic_prefix or f"bench-{chosen.name}-{int(time.time())}"
        access = {name: getattr(flags, name) for name in _ACCESS}
        rate = chosen.rate / flags.divide_rate
        produce = ProducerFlags(
            topics=(prefix,), num_topics=chosen.topics, rate=rate, num_producers=chosen.producers, **access
        )
        # The names of the original's subscriptions are "sub-" and a number.
        consume = ConsumerFlags(
            topics=(prefix,),
            num_topics=chosen.topics,
            subscriptions=(",".join(f"sub-{number}" for number in range(chosen.subscriptions)),),
            num_subscriptions=chosen.subscriptions,
            num_consumers=chosen.consumers,
            subscription_type="Failover",
            **access,
        )
        produce.check()
        consume.check()
        self.topics = produce.names()
        rng = random.Random(0)
        pool = [half_random(chosen.size, chosen.random_ratio, rng) for _ in range(chosen.payloads)]
        payloads = Payloads(pool or [letters(chosen.size, rng)], rng)
        self.producing = ProduceLoad(produce, self.topics, payloads)
        self.consuming = ConsumeLoad(consume, self.topics)
        self._backlog: list[str] = []

    async def work(self, run: LoadSession) -> None:
        """Produce and consume until the time is over. Raises ClientError."""
        async with kept_client(self._flags) as client, trio.open_nursery() as nursery:
            await self.consuming.open(client)
            guard = trio.CancelScope(shield=True)  # what was produced before a signal is still received
            nursery.start_soon(self._consume, guard)
            if self._chosen.backlog_gb:
                nursery.start_soon(self._build_backlog)
            try:
                await self.producing.work(run)
            finally:
                await self._wait_for_consumers()
                guard.cancel()
                nursery.cancel_scope.cancel()

    async def _consume(self, guard: trio.CancelScope) -> None:
        with guard:
            await self.consuming.work()

    async def _wait_for_consumers(self) -> None:
        """Wait a moment until what was produced is received too, so that both closing lines have the same messages."""
        with trio.move_on_after(DRAIN_S, shield=True):
            if self.consuming.receiving.paused.is_set():
                await _reached(lambda: self._waiting() <= 0)

    def _waiting(self) -> int:
        """Return the messages that are produced and not received, over all subscriptions."""
        return self.producing.meter.messages * self._chosen.subscriptions - self.consuming.receiving.meter.messages

    async def _build_backlog(self) -> None:
        wanted = self._chosen.backlog_gb * 1024**3 / self._flags.divide_rate
        receiving = self.consuming.receiving
        receiving.paused = trio.Event()
        begun = time.monotonic()
        await _reached(lambda: self._waiting() * self._chosen.size >= wanted)
        built = time.monotonic()
        count = self._waiting()
        receiving.paused.set()
        await _reached(lambda: self._waiting() <= _LEFT)
        drained = time.monotonic() - built
        self._backlog.append(
            f"Backlog stats --- {count} messages built in {built - begun:.1f} s --- drained in {drained:.1f} s"
            f" --- {count / drained if drained else 0:.1f} msg/s"
        )

    def closing(self) -> list[str]:
        """Return the closing lines."""
        lost = ["Backlog stats --- not built or not drained in the time"]
        backlog = (self._backlog or lost) if self._chosen.backlog_gb else []
        return [*self.producing.closing(), *self.consuming.closing(), *backlog]


async def _reached(condition: Callable[[], bool]) -> None:
    """Wait for a condition on the counters of the load, which the hot path does not announce."""
    while not condition():  # noqa: ASYNC110
        await trio.sleep(_POLL_S)

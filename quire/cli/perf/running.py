"""A run: a load, its meters, what is printed while it lasts, and what is written at its end."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from quire.cli.messages.access import INTERRUPTED, ClusterAccess, FlagsError
from quire.cli.messages.stopping import stoppable
from quire.cli.perf.flags import ReportFlags
from quire.cli.perf.histogram import LatencyHistogram
from quire.cli.perf.histogram_log import HistogramLog
from quire.cli.perf.lines import Throughput, own_cost
from quire.cli.perf.live import LiveView, has_terminal
from quire.cli.perf.meter import LoadMeter
from quire.cli.perf.picture import draw
from quire.client.client import Client, open_client
from quire.world.real import real_world

SAMPLE_S = 0.5
DRAIN_S = 10.0
"""Time for what is under way after the end of a load."""

Line = Callable[[Throughput, LatencyHistogram], str]


@dataclass(slots=True)
class Metered:
    """A meter with the lines made of it."""

    name: str
    meter: LoadMeter
    line: Line | None = None
    """Line of an interval; None: another one of the run has it."""
    tag: str = ""
    """Tag of its intervals in the log of histograms."""


@dataclass(slots=True)
class LoadSession:
    """Meters of a load, its files and its lines."""

    title: str
    metered: Sequence[Metered]
    histogram_file: str = ""
    more_lines: Callable[[], list[str]] = list
    """Lines before those of the meters in each interval."""
    closing: Callable[[], list[str]] = list
    """Lines at the end."""
    late_s: float = 0.0
    """Longest time that a message was sent after its moment."""
    started: trio.Event = field(default_factory=trio.Event)

    def start(self) -> None:
        """Begin to measure: everything is connected."""
        for each in self.metered:
            each.meter.restart()
        self.started.set()

    def messages(self) -> int:
        """Return the messages of all meters."""
        return sum(each.meter.messages for each in self.metered)


async def measure(flags: ReportFlags, run: LoadSession, load: Callable[[], Awaitable[None]]) -> int:
    """Run a load until it ends, for --test-duration, or until a signal; print and write what it did.

    `load` calls `run.start` when it is connected. Returns the exit code. Raises what `load` does, after the lines."""
    with _outputs(flags, run) as (log, view):
        cpu = time.process_time()
        async with stoppable() as stop, trio.open_nursery() as nursery:
            nursery.start_soon(_report, flags, run, log, view)
            nursery.start_soon(_end_after, flags.test_duration, run, stop.scope)
            try:
                with stop.scope:
                    await load()
            finally:
                nursery.cancel_scope.cancel()
                cpu = time.process_time() - cpu
                for each in run.metered:
                    each.meter.sample()
                _write_intervals(run, log)
        code = INTERRUPTED if stop.interrupted else 0
    for text in run.closing():
        print(text)
    total = run.metered[0].meter.total()
    print(own_cost(cpu, total.seconds, run.messages(), run.late_s), flush=True)
    if flags.picture:
        meter = run.metered[0].meter
        _write_picture(flags.picture, draw(run.title, meter.whole, meter.samples, meter.unit_ms))
    return code


def _write_picture(path: str, text: str) -> None:
    Path(path).write_text(text, encoding="utf-8")


@asynccontextmanager
async def kept_client(access: ClusterAccess) -> AsyncIterator[Client]:
    """Open a client whose connections outlive a cancellation of the block, so that the block can finish its work."""
    leave = trio.Event()

    async def hold(task_status: trio.TaskStatus[Client]) -> None:
        with trio.CancelScope() as guard:
            async with open_client(real_world(), access.brokers(), access.client_options()) as client:
                guard.shield = True
                task_status.started(client)
                await leave.wait()

    async with trio.open_nursery() as nursery:
        client = await nursery.start(hold)
        try:
            yield client
        finally:
            leave.set()


@contextmanager
def _outputs(flags: ReportFlags, run: LoadSession) -> Iterator[tuple[HistogramLog | None, LiveView | None]]:
    """Open the files and the table, so that a wrong path is refused before the load. Raises FlagsError."""
    if flags.picture:
        if not flags.picture.endswith(".svg"):
            raise FlagsError(f"--picture {flags.picture}: pictures are SVG; give a name that ends in .svg")
        if not Path(flags.picture).absolute().parent.is_dir():
            raise FlagsError(f"--picture {flags.picture}: its folder does not exist")
    with ExitStack() as stack:
        log = view = None
        if run.histogram_file:
            try:
                log = HistogramLog(stack.enter_context(open(run.histogram_file, "w", encoding="ascii")))
            except OSError as error:
                raise FlagsError(f"--histogram-file {run.histogram_file}: {error.strerror}") from None
        if flags.live and has_terminal():
            view = stack.enter_context(LiveView(run.title, {each.name: each.meter for each in run.metered}))
        yield log, view


async def _end_after(seconds: float, run: LoadSession, scope: trio.CancelScope) -> None:
    await run.started.wait()
    if seconds > 0:
        await trio.sleep(seconds)
        scope.cancel()


async def _report(flags: ReportFlags, run: LoadSession, log: HistogramLog | None, view: LiveView | None) -> None:
    await run.started.wait()
    due = trio.current_time() + flags.report_interval
    while True:
        await trio.sleep(min(SAMPLE_S, max(due - trio.current_time(), 0)))
        for each in run.metered:
            each.meter.sample()
        if view is not None:
            view.update()
        if trio.current_time() < due:
            continue
        due += flags.report_interval
        lines = _write_intervals(run, log)
        if view is None:
            print("\n".join([*run.more_lines(), *lines]), flush=True)


def _write_intervals(run: LoadSession, log: HistogramLog | None) -> list[str]:
    """End the interval of each meter, write it to the log, and return its lines."""
    lines = []
    for each in run.metered:
        counted, found = each.meter.end_interval()
        if log is not None:
            log.write(found, time.time() - counted.seconds, counted.seconds, each.tag)
        if each.line is not None:
            lines.append(each.line(counted, found))
    return lines

"""Progress of a running pipeline: a line per batch; on a terminal also its current step."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rich.console import Console
from rich.status import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """One batch of a query, as Spark reports it."""

    batch: int
    rows: int
    rows_per_s: float
    seconds: float
    lag: int | None
    """Entries behind this batch's end at the source; None: unknown."""
    observed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Values of the observations of the query (DataFrame.observe), by name."""

    @classmethod
    def parse(cls, text: str) -> BatchProgress:
        """Parse the JSON of a StreamingQueryProgress."""
        value = json.loads(text)
        durations = value.get("durationMs") or {}
        return cls(
            batch=int(value["batchId"]),
            rows=int(value.get("numInputRows") or 0),
            rows_per_s=float(value.get("processedRowsPerSecond") or 0.0),
            seconds=float(durations.get("triggerExecution") or 0) / 1000,
            lag=lag_of(value.get("sources") or []),
            observed=value.get("observedMetrics") or {},
        )

    def line(self, base: int = 0) -> str:
        """Return one line; `base` is added to the number of the batch."""
        lag = "" if self.lag is None else f", {self.lag} entries behind"
        return f"batch {base + self.batch}: {self.rows} rows in {self.seconds:.1f} s, {self.rows_per_s:.0f} rows/s{lag}"


def lag_of(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the backlog in entries, over all `quire` sources; None if no source reports it.

    The source adds it to the latest offset it reports, which Spark shows as JSON or as the text of it."""
    total: int | None = None
    for source in sources:
        latest = source.get("latestOffset")
        if isinstance(latest, str):
            try:
                latest = json.loads(latest)
            except ValueError:
                continue
        if isinstance(latest, Mapping) and "behind" in latest:
            total = (total or 0) + int(latest["behind"])
    return total


class Seen:
    """Filter for new progress reports: Spark repeats the last few, and idle ones."""

    def __init__(self) -> None:
        self._last = -1

    def new(self, reports: Iterable[BatchProgress]) -> list[BatchProgress]:
        """Return the reports of batches that were not returned before, and had rows."""
        fresh = []
        for report in reports:
            if report.batch > self._last and report.rows > 0:
                self._last = report.batch
                fresh.append(report)
        return fresh


class Display(Protocol):
    """Display of progress."""

    def now(self, text: str) -> None:
        """Show the current step, which the next one replaces."""

    def line(self, text: str) -> None: ...

    def close(self) -> None: ...


class TerminalDisplay:
    """Display of lines, and below them the current step."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None

    def now(self, text: str) -> None:
        if self._status is None:
            self._status = self._console.status(text)
            self._status.start()
        else:
            self._status.update(text)

    def line(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


class PlainDisplay:
    """Display of lines only, for files and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def now(self, text: str) -> None:
        pass

    def line(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)
        self._console.file.flush()

    def close(self) -> None:
        pass


def make_display(console: Console) -> Display:
    return TerminalDisplay(console) if console.is_terminal else PlainDisplay(console)

"""A query from a topic to a topic as a process that can be watched, frozen at a chosen point of a batch, and killed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from quire.spark.trace import read_trace
from tests.spark.archive_run import ArchiveRun, TraceTail

CHECKOUT = Path(__file__).parents[2]
TASKS = 2
"""Tasks of a batch that write."""


class SinkRun(ArchiveRun):
    """A stream, one driver process at a time. Source and sink write one trace."""

    def command(self) -> list[str]:
        """Return the command of the next driver, which writes the trace `self.tail.path`."""
        raise NotImplementedError

    def start(self) -> None:
        self.runs += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tail = TraceTail(self.folder / f"trace-{self.runs}.jsonl")
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                self.command(), cwd=CHECKOUT, env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def end(self, seconds: float) -> int:
        """Wait until the driver ends by itself; return its exit code."""
        assert self._process is not None, "the driver was never started"
        return self._process.wait(seconds)

    def writers(self, batch: int) -> dict[int, list[int]]:
        """Return the workers that have begun to write each task of a batch, in their order."""
        found: dict[int, list[int]] = {}
        for event in self._of("writing", batch):
            found.setdefault(event["task"], []).append(event["pid"])
        return found

    def writing(self, batch: int) -> tuple[int, int]:
        """Return a task that writes a batch, and its worker."""
        done = {event["pid"] for event in self._of("written", batch)}
        return next((task, pids[-1]) for task, pids in self.writers(batch).items() if pids[-1] not in done)

    def before_tasks(self, least: int) -> int | None:
        """Return a batch at K1: its offsets are logged, and no task of it writes."""
        batch = self._pending(least)
        return None if batch is None or self._of("writing", batch) else batch

    def in_mid_write(self, least: int) -> int | None:
        """Return a batch at K2: a task of it writes."""
        batch = self._pending(least)
        if batch is None:
            return None
        return batch if len(self._of("writing", batch)) > len(self._of("written", batch)) else None

    def before_sink_commit(self, least: int) -> int | None:
        """Return a batch at K3: all of its tasks are done, and the sink has not committed."""
        batch = self._pending(least)
        if batch is None or self._of("sink committed", batch):
            return None
        return batch if len(self._of("written", batch)) == TASKS else None

    def between_sink_and_spark(self, least: int) -> int | None:
        """Return a batch at K4: the sink has committed it, and Spark has not."""
        batch = self._pending(least)
        return batch if batch is not None and self._of("sink committed", batch) else None

    def _of(self, name: str, batch: int) -> list[dict[str, Any]]:
        events = read_trace(str(self.tail.path))
        return [event for event in events if event["event"] == name and is_of(event, batch)]

    def _pending(self, least: int) -> int | None:
        batch = self.last("offsets")
        return None if batch < least or self.has("commits", batch) else batch


def is_of(event: dict[str, Any], batch: int) -> bool:
    return event.get("batch") == batch or event.get("what") == f"batch {batch}"

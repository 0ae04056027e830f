"""Kills at a chosen point of a query that runs in this process: while a task of a batch writes.

The trace says that a worker writes. The worker is stopped, the trace is read again, and only if its task is not done in
the meantime is something killed. Otherwise it continues, and the next task is taken.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quire.spark.trace import read_trace

POLL_S = 0.001


def writing(trace: Path, least: int) -> list[dict[str, Any]]:
    """Return the events of tasks that write now, of batch `least` or a later one."""
    open_tasks: dict[tuple[Any, ...], dict[str, Any]] = {}
    for event in read_trace(str(trace)):
        key = (event["pid"], event.get("batch"), event.get("task"))
        if event["event"] == "writing" and int(str(event["batch"])) >= least:
            open_tasks[key] = event
        elif event["event"] == "written":
            open_tasks.pop(key, None)
    return list(open_tasks.values())


class PlacedKill:
    """One kill while a task of batch `least` or a later one writes, with the worker of that task stopped."""

    def __init__(self, trace: Path, least: int, kill: Callable[[int], None]) -> None:
        """`kill`: is given the pid of the worker; it may kill it, or something else."""
        self.trace = trace
        self.hit: dict[str, Any] | None = None
        """Event of the task that was hit."""
        self._least = least
        self._kill = kill
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> PlacedKill:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._given_up.set()
        self._thread.join()

    def attempts(self) -> list[int]:
        """Return the workers that have begun to write the task that was hit, in their order."""
        assert self.hit is not None, "nothing was killed: no task was met while it wrote"
        task = [self.hit[name] for name in ("query", "batch", "task")]
        return [
            int(str(event["pid"]))
            for event in read_trace(str(self.trace))
            if event["event"] == "writing" and [event[name] for name in ("query", "batch", "task")] == task
        ]

    def _run(self) -> None:
        seen = 0
        while not self._given_up.is_set():
            size = self.trace.stat().st_size if self.trace.exists() else 0
            if size == seen:
                time.sleep(POLL_S)
                continue
            seen = size
            for event in writing(self.trace, self._least):
                if self._strike(event):
                    return

    def _strike(self, event: dict[str, Any]) -> bool:
        pid = event["pid"]
        try:
            os.kill(pid, signal.SIGSTOP)
        except ProcessLookupError:
            return False
        try:
            if event not in writing(self.trace, self._least):
                return False
            self._kill(pid)
            self.hit = event
            return True
        finally:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass


def kill_worker(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def last_batch(checkpoint: Path) -> int:
    return max(int(name) for name in os.listdir(checkpoint / "commits") if name.isdigit())


def take_commit_back(checkpoint: Path, batch: int) -> None:
    """Leave a checkpoint as a driver leaves it that was killed between the sink's commit of its last batch and Spark's
    (K4): the batch is run again."""
    assert batch == last_batch(checkpoint), "only the last batch can be the one that is not committed"
    for name in (str(batch), f".{batch}.crc"):
        (checkpoint / "commits" / name).unlink()


def commits_of(trace: Path, batch: int) -> int:
    """Return how often the sink has committed a batch."""
    events = read_trace(str(trace))
    return sum(event["event"] == "sink committed" and event["what"] == f"batch {batch}" for event in events)

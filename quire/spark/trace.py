"""Trace of the processes of a query, one JSON line per event in one file, for tests and for a look at the order of
Spark's calls.

Off unless the option `trace` names a file."""

from __future__ import annotations

import json
import os
import time


class Trace:
    """Trace file that several processes append to. Pickles; opens the file for each event."""

    def __init__(self, path: str = "") -> None:
        self._path = path

    def note(self, event: str, **fields: object) -> None:
        """Append `{"event": ..., "pid": ..., "ms": wall clock, ...}`; one write, so that lines do not mix."""
        if not self._path:
            return
        line = json.dumps(
            {"event": event, "pid": os.getpid(), "ms": time.time_ns() // 1_000_000, **fields}, default=str
        )
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, line.encode() + b"\n")
        finally:
            os.close(handle)


def read_trace(path: str) -> list[dict[str, object]]:
    """Return the events of a trace file, in the order they were written; [] if there is none yet."""
    try:
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return []

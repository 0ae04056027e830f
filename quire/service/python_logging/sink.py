"""Give events of Quire's log to Python's handlers, in a thread of their own.

A handler may write a file, or send to a socket or by mail. The event loop only puts a record into a bounded queue, so a
slow handler never holds it. Records that find the queue full are dropped, and counted in a line of the log.

The levels are Quire's: those of the file hold at the start, and PUT /quire/loggers changes them later.
"""

from __future__ import annotations

import atexit
import logging
import queue
import sys
import threading  # noqa: TID251 - handlers block, and are not part of the simulated world
from collections.abc import Callable, Mapping
from typing import Any, Final

QUEUE_MAX: Final = 10_000
CLOSE_TIMEOUT_S: Final = 5.0
"""Longest wait for the handlers when the process ends."""
DROPPED: Final = "log lines dropped: the handlers of BOOKIE_LOG_CONF are too slow"
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


class HandlerThread:
    """Handlers of Python's logging behind a bounded queue."""

    def __init__(self, render: Callable[[Mapping[str, Any]], str], queue_max: int = QUEUE_MAX) -> None:
        self._render = render
        self._records: queue.Queue[logging.LogRecord | None] = queue.Queue(queue_max)
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="log handlers", daemon=True)

    def start(self) -> None:
        """Start the thread; it ends at the exit of the process."""
        self._thread.start()
        atexit.register(self.close)

    def write(self, level: str, event: Mapping[str, Any], wall_s: float) -> None:
        """Put an event into the queue, or drop it if the queue is full. Never waits."""
        record = self._record(level, event, wall_s)
        try:
            self._records.put_nowait(record)
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Write what is in the queue, for CLOSE_TIMEOUT_S at most, and end the thread."""
        atexit.unregister(self.close)
        try:
            self._records.put(None, timeout=CLOSE_TIMEOUT_S)
        except queue.Full:
            return
        self._thread.join(CLOSE_TIMEOUT_S)

    def _record(self, level: str, event: Mapping[str, Any], wall_s: float) -> logging.LogRecord:
        name = str(event.get("logger", ""))
        pairs = {key: value for key, value in event.items() if key not in ("timestamp", "level", "logger")}
        record = logging.LogRecord(name, _LEVELS[level], "", 0, self._render(pairs), None, None)
        record.created = wall_s
        record.msecs = wall_s % 1 * 1000
        record.relativeCreated = 0.0
        record.__dict__["event"] = event.get("event", "")
        record.__dict__["pairs"] = {key: value for key, value in pairs.items() if key != "event"}
        return record

    def _run(self) -> None:
        reported = 0
        while (record := self._records.get()) is not None:
            _handle(record)
            if (number := self._dropped) > reported:
                pairs = {"logger": __name__, "event": DROPPED, "dropped": number - reported}
                reported = number
                _handle(self._record("warning", pairs, record.created))


def _handle(record: logging.LogRecord) -> None:
    """Give a record to its logger's handlers. An error of a handler must not end the log."""
    try:
        logging.getLogger(record.name).handle(record)
    except Exception as error:
        if sys.stderr is not None:
            print(f"log handler failed: {error!r}", file=sys.stderr)

"""The log: one line per event, key=value.

    timestamp=2026-01-31T12:00:00.123Z level=info logger=bookie.bookie event="ledger created" ledger_id=7

    log = get_logger(__name__)
    log.info("ledger created", ledger_id=7)

Levels: debug for us, info for what an operator may want to follow, warning for what the server mended itself, error
for "a human must look" (tests fail on one they did not announce). structlog is imported by the first line that is
really written, so a server that starts in silence does not wait for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}

Event = MutableMapping[str, Any]

_threshold = LEVELS["info"]
_stream: TextIO | None = None
_wall_ms: Callable[[], int] | None = None
_taps: list[list[Event]] = []
_structlog_ready = False


def configure(level: str = "info", stream: TextIO | None = None, *, wall_ms: Callable[[], int] | None = None) -> None:
    """From now on write lines of `level` and above to `stream` (None: standard error). `wall_ms` is the clock to date
    them by, `world.clock.wall_ms` in a server (None: the machine's). ValueError for a level that does not exist."""
    global _threshold, _stream, _wall_ms
    if level not in LEVELS:
        raise ValueError(f"{level!r} is no log level: {', '.join(LEVELS)}")
    _threshold = LEVELS[level]
    _stream = stream
    _wall_ms = wall_ms


class Logger:
    """A structlog logger with `logger=name` bound, made when it first has something to write."""

    __slots__ = ("_bound", "_context")

    def __init__(self, context: Event) -> None:
        self._context = context
        self._bound: Any = None

    def bind(self, **pairs: Any) -> Logger:
        """A logger that adds `pairs` to each of its events."""
        return Logger({**self._context, **pairs})

    def debug(self, event: str, **pairs: Any) -> None:
        self._write("debug", event, pairs)

    def info(self, event: str, **pairs: Any) -> None:
        self._write("info", event, pairs)

    def warning(self, event: str, **pairs: Any) -> None:
        self._write("warning", event, pairs)

    def error(self, event: str, **pairs: Any) -> None:
        """Log an event that a person must look at."""
        self._write("error", event, pairs)

    def exception(self, event: str, **pairs: Any) -> None:
        """Log an error with the traceback of the current exception, on the same line."""
        self._write("error", event, {"exc_info": True, **pairs})

    def critical(self, event: str, **pairs: Any) -> None:
        """Log that the server cannot continue."""
        self._write("critical", event, pairs)

    def _write(self, level: str, event: str, pairs: Event) -> None:
        if LEVELS[level] < _threshold and not _taps:
            return
        if self._bound is None:
            self._bound = _structlog_logger(self._context)
        getattr(self._bound, level)(event, **pairs)


def get_logger(name: str) -> Logger:
    """Return the logger of one module: `get_logger(__name__)`."""
    return Logger({"logger": name})


@contextmanager
def captured() -> Iterator[list[Event]]:
    """Capture every event of every level while inside, as dicts with `level`, `logger` and `event`; for tests."""
    events: list[Event] = []
    _taps.append(events)
    try:
        yield events
    finally:
        _taps[:] = [tap for tap in _taps if tap is not events]


def _structlog_logger(context: Event) -> Any:
    global _structlog_ready
    import structlog

    if not _structlog_ready:
        structlog.configure(
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.format_exc_info,
                _tap,
                _drop_quiet,
                _date,
                structlog.processors.LogfmtRenderer(
                    key_order=["timestamp", "level", "logger", "event"], bool_as_flag=False
                ),
            ],
            logger_factory=lambda *_: _Lines(),
            cache_logger_on_first_use=False,
        )
        _structlog_ready = True
    return structlog.get_logger().bind(**context)


def _tap(_: Any, __: str, event: Event) -> Event:
    for tap in _taps:
        tap.append(dict(event))
    return event


def _drop_quiet(_: Any, level: str, event: Event) -> Event:
    if LEVELS[level] < _threshold:
        import structlog

        raise structlog.DropEvent
    return event


def _date(_: Any, __: str, event: Event) -> Event:
    now = datetime.fromtimestamp(_wall_ms() / 1000, UTC) if _wall_ms else _machine_time()
    event["timestamp"] = now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}Z"
    return event


def _machine_time() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - before a world is there; a server gives its own clock


class _Lines:
    """Sink of structlog's rendered lines. A log that cannot be written must not stop the server."""

    def msg(self, line: str) -> None:
        stream = _stream if _stream is not None else sys.stderr
        if stream is None:  # standard error was closed at the start of the process
            return
        try:
            stream.write(line + "\n")
            stream.flush()
        except (OSError, ValueError):
            pass

    debug = info = warning = error = critical = msg

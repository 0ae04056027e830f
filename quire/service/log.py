"""The log: one line per event, key=value.

    timestamp=2026-01-31T12:00:00.123Z level=info logger=bookie.bookie event="ledger created" ledger_id=7

    log = get_logger(__name__)
    log.info("ledger created", ledger_id=7)

Levels: debug for us, info for what an operator may want to follow, warning for what the server mended itself, error
for "a human must look" (tests fail on one they did not announce). structlog is imported by the first line that is
really written, so a server that starts in silence does not wait for it.

A level holds for all loggers, or for one and those below it (`broker.dispatch` is above
`broker.dispatch.subscription`); the longest name counts. Levels can be changed while the server runs (`set_level`; PUT
/quire/loggers of each web port).
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO, TypeAlias

from quire.service.latest.warnings import LATEST
from quire.world.unwrap import leaves

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}

Event = MutableMapping[str, Any]
Sink: TypeAlias = Callable[[str, Mapping[str, Any], float], None]
"""Function that gets the level, an event, and its time in seconds since 1970."""

KEY = "quireLogLevels"
_NAMES = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")

_threshold = LEVELS["info"]
_levels: dict[str, str] = {}
"""Levels of single loggers and those below them."""
_thresholds: dict[str, int] = {}
"""By the name of a logger, as found out: emptied when a level changes."""
_stream: TextIO | None = None
_sink: Sink | None = None
"""Function that gets the events instead of the stream."""
_wall_ms: Callable[[], int] | None = None
_taps: list[list[Event]] = []
_structlog_ready = False


def configure(
    level: str = "info",
    stream: TextIO | None = None,
    *,
    wall_ms: Callable[[], int] | None = None,
    levels: Mapping[str, str] | None = None,
) -> None:
    """From now on write lines of `level` and above to `stream` (None: standard error). `wall_ms` is the clock to date
    them by, `world.clock.wall_ms` in a server (None: the machine's). `levels`: those of single loggers, as of
    `parse_levels`. ValueError for a level that does not exist."""
    global _threshold, _stream, _wall_ms
    check_level(level)
    _threshold = LEVELS[level]
    _stream = stream
    _wall_ms = wall_ms
    _levels.clear()
    _levels.update(levels or {})
    _thresholds.clear()


def write_to(sink: Sink | None) -> None:
    """From now on give events to `sink` instead of the stream; None: to the stream again."""
    global _sink
    _sink = sink


def render(pairs: Mapping[str, Any]) -> str:
    """Return pairs as in a line of the log: `event="ledger created" ledger_id=7`."""
    import structlog

    renderer = structlog.processors.LogfmtRenderer(key_order=["event"], bool_as_flag=False)
    return renderer(None, "", dict(pairs))


def check_level(level: str) -> None:
    """ValueError for a level that does not exist."""
    if level not in LEVELS:
        raise ValueError(f"{level!r} is no log level: {', '.join(LEVELS)}")


def check_logger(name: str) -> None:
    """ValueError for what cannot be the name of a logger."""
    if not is_logger(name):
        raise ValueError(f"{name[:80]!r} is not the name of a logger, such as broker.dispatch")


def is_logger(name: str) -> bool:
    """Return whether a logger can have this name."""
    return bool(_NAMES.fullmatch(name)) and ".." not in name and not name.endswith(".")


def parse_levels(pairs: Iterable[str]) -> dict[str, str]:
    """Read the levels of single loggers, each as `logger=level`, of the key quireLogLevels. ValueError."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, level = (part.strip() for part in pair.partition("="))
        try:
            if not equals:
                raise ValueError(f"{pair!r} is not of the form logger=level")
            check_logger(name)
            check_level(level)
        except ValueError as error:
            raise ValueError(f"{KEY}: {error}") from None
        if name in found:
            raise ValueError(f"{KEY}: {name} is there twice")
        found[name] = level
    return found


def set_level(name: str, level: str | None) -> None:
    """Give a logger and those below it a level of their own (None: that of the logger above), from now on. "" is the
    level of all others, which is always there. ValueError."""
    global _threshold
    if level is not None:
        check_level(level)
    if not name:
        if level is None:
            raise ValueError("the level of all loggers can be changed, not taken away")
        _threshold = LEVELS[level]
    else:
        check_logger(name)
        if level is None:
            _levels.pop(name, None)
        else:
            _levels[name] = level
    _thresholds.clear()


def levels() -> dict[str, str]:
    """Return the levels in force: that of all loggers under "", and those of single ones."""
    [everywhere] = [level for level, value in LEVELS.items() if value == _threshold]
    return {"": everywhere, **dict(sorted(_levels.items()))}


def _threshold_of(name: str) -> int:
    """The least level that a logger writes."""
    found = _thresholds.get(name)
    if found is None:
        above = name
        while above and above not in _levels:
            above = above.rpartition(".")[0]
        found = _thresholds[name] = LEVELS[_levels[above]] if above else _threshold
    return found


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
        if LEVELS[level] < _threshold_of(self._context["logger"]) and not _taps:
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
                _tracebacks,
                _tap,
                _drop_quiet,
                _date,
                _keep,
                _to_sink,
                structlog.processors.LogfmtRenderer(
                    key_order=["timestamp", "level", "logger", "event"], bool_as_flag=False
                ),
            ],
            logger_factory=lambda *_: _Lines(),
            cache_logger_on_first_use=False,
        )
        _structlog_ready = True
    return structlog.get_logger().bind(**context)


def _tracebacks(_: Any, __: str, event: Event) -> Event:
    """Put the traceback of the exception into `exception`; of a group those of its leaves, not the way there through
    the nurseries."""
    found = event.pop("exc_info", None)
    error = sys.exc_info()[1] if found is True else found
    if isinstance(error, BaseException):
        texts = ["".join(traceback.format_exception(leaf)).rstrip("\n") for leaf in leaves(error)]
        event["exception"] = "\n".join(dict.fromkeys(texts))
    return event


def _tap(_: Any, __: str, event: Event) -> Event:
    for tap in _taps:
        tap.append(dict(event))
    return event


def _drop_quiet(_: Any, level: str, event: Event) -> Event:
    if LEVELS[level] < _threshold_of(event["logger"]):
        import structlog

        raise structlog.DropEvent
    return event


def _now() -> datetime:
    return datetime.fromtimestamp(_wall_ms() / 1000, UTC) if _wall_ms else _machine_time()


def _date(_: Any, __: str, event: Event) -> Event:
    now = _now()
    event["timestamp"] = now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}Z"
    return event


def _keep(_: Any, level: str, event: Event) -> Event:
    if LEVELS[level] >= LEVELS["warning"]:
        LATEST.keep(event)
    return event


def _to_sink(_: Any, level: str, event: Event) -> Event:
    if _sink is None:
        return event
    import structlog

    _sink(level, event, _now().timestamp())
    raise structlog.DropEvent


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

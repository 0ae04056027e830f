"""The latest warnings of all processes of a cluster that can be reached: of this broker from memory, of other brokers
and of bookies from `/quire/warnings` of their web ports.

A feed is shared by all pages. It keeps the lines of the last LINES_MAX, with numbers of its own, and for each source
the number of the last line that it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import trio

from broker.errors import BrokerError
from quire.service.latest.routes import PATH
from quire.service.latest.warnings import LATEST, KeptLine, WarningRing

LINES_MAX: Final = 1000
SOURCES_MAX: Final = 200
ASKERS: Final = 8
ASK_S: Final = 3.0
AGAIN_S: Final = 3.0
"""Seconds between two questions to the same source."""

Fetch = Callable[[str], Awaitable[Any]]
"""Request a path of a source; return the JSON of a success. Raises OSError, ValueError, BrokerError."""


class LogSource(NamedTuple):
    """A process with a log."""

    kind: str
    """broker or bookie."""
    name: str
    fetch: Fetch | None
    """None: it has no web port."""


@dataclass(slots=True)
class SourceState:
    """State of one source."""

    last: int = 0
    problem: str = ""


class FeedLine(NamedTuple):
    """A line of the feed."""

    number: int
    kind: str
    source: str
    line: KeptLine

    def as_json(self) -> dict[str, Any]:
        """Return the line as JSON."""
        return {**self.line.as_json(), "number": self.number, "kind": self.kind, "source": self.source}


def lines_in(found: Any) -> tuple[list[KeptLine], int]:
    """Return the lines of an answer of `/quire/warnings`, and the newest number. Raises ValueError."""
    try:
        names = ("timestamp", "level", "logger", "event", "text")
        lines = [KeptLine(int(each["number"]), *(str(each[name]) for name in names)) for each in found["lines"]]
        return lines, int(found["newest"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"it is no list of warnings: {error!r}") from error


class WarningFeed:
    """Feed of one broker."""

    def __init__(
        self, own: Callable[[], str], sources: Callable[[], Awaitable[Iterable[LogSource]]], ring: WarningRing = LATEST
    ) -> None:
        """`own`: returns the name of this broker; `sources`: the other processes. Raises MetadataError."""
        self._own = own
        self._sources = sources
        self._ring = ring
        self._lines: deque[FeedLine] = deque(maxlen=LINES_MAX)
        self._number = 0
        self._by_name: dict[tuple[str, str], SourceState] = {}
        self._own_last = 0
        self._asked_at = float("-inf")
        self._asking = trio.Lock()

    async def refresh(self) -> None:
        """Take what is new: of this process always, of others unless they were asked a moment ago. MetadataError."""
        self._take_own()
        if trio.current_time() - self._asked_at < AGAIN_S or self._asking.locked():
            return
        async with self._asking:
            self._asked_at = trio.current_time()
            await self._ask_all()

    def _take_own(self) -> None:
        lines, _ = self._ring.after(self._own_last)
        self._own_last = self._ring.newest if not lines else lines[-1].number
        own = LogSource("broker", self._own(), None)
        self._add((own, line) for line in lines)

    async def _ask_all(self) -> None:
        sources = list(await self._sources())[:SOURCES_MAX]
        known = {(each.kind, each.name) for each in sources}
        self._by_name = {key: state for key, state in self._by_name.items() if key in known}
        ahead = iter(sources)
        found: list[tuple[LogSource, KeptLine]] = []

        async def ask() -> None:
            for source in ahead:
                state = self._by_name.setdefault((source.kind, source.name), SourceState())
                found.extend((source, line) for line in await self._ask(source, state))

        async with trio.open_nursery() as nursery:
            for _ in range(min(ASKERS, len(sources))):
                nursery.start_soon(ask, name="warnings of others")
        found.sort(key=lambda each: (each[1].timestamp, each[0].name, each[1].number))
        self._add(found)

    async def _ask(self, source: LogSource, state: SourceState) -> list[KeptLine]:
        if source.fetch is None:
            state.problem = "it has no web port"
            return []
        try:
            with trio.fail_after(ASK_S):
                lines, newest = lines_in(await source.fetch(f"{PATH}?after={state.last}"))
        except trio.TooSlowError:
            state.problem = f"no answer within {ASK_S:g} s"
        except (OSError, ValueError, BrokerError) as error:
            state.problem = str(error) or type(error).__name__
        else:
            state.last, state.problem = newest, ""
            return lines
        return []

    def _add(self, found: Iterable[tuple[LogSource, KeptLine]]) -> None:
        for source, line in found:
            self._number += 1
            self._lines.append(FeedLine(self._number, source.kind, source.name, line))

    def after(self, number: int) -> dict[str, Any]:
        """Return the lines after a number of the feed, oldest first, and the sources, as JSON."""
        # A page that knows a number which was never given has followed an earlier process: it begins again.
        known = number if number <= self._number else 0
        lines = [each.as_json() for each in self._lines if each.number > known]
        others = [
            {"kind": kind, "name": name, "problem": state.problem}
            for (kind, name), state in sorted(self._by_name.items())
        ]
        own = {"kind": "broker", "name": self._own(), "problem": ""}
        return {"newest": self._number, "lines": lines, "sources": [own, *others]}

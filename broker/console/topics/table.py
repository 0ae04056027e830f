"""The table of topics behind their page: rows, order and parts of it, made in short steps. Pure.

100,000 topics are sorted and filtered at the server, since a browser would have to read them all first. One `sorted`
over them holds the event loop for 200 ms. So runs of `ROWS_IN_STEP` are sorted one by one and then merged lazily, with
a step between; columns are arrays, which take a tenth of the memory of objects.

Partitions of one topic are one row: sums, and how many there are.
"""

from __future__ import annotations

import re
from array import array
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from typing import Any, Final, NamedTuple

from broker.console.topics.silent import SilentBundles

COLUMNS: Final = (
    "messagesIn",
    "bytesIn",
    "messagesOut",
    "bytesOut",
    "backlog",
    "storage",
    "producers",
    "consumers",
    "subscriptions",
    "loaded",
    "silent",
    "partitions",
)
"""Numbers of a row; rates are per second. `loaded`: parts of it that a broker serves now; `silent`: parts whose broker
did not answer; `partitions` 0: none."""
MEASURED: Final = len(COLUMNS) - 3
"""Columns that the broker of a topic measures."""
ROWS_IN_STEP: Final = 1000
POINTS: Final = 40
"""Points of a curve."""
CURVES_MAX: Final = 5000
"""Topics whose curve is kept; others begin when one of these falls silent."""
ORDERS_MAX: Final = 8
"""Orders that are kept of one table."""
ONLY: Final = ("all", "active", "backlog", "unconsumed")
"""Topics that are wanted: all, with traffic, with a backlog, with a backlog and without consumers."""
NONE_SILENT: Final = SilentBundles(())
_NOTHING: Final = (0.0,) * MEASURED
_PARTITION: Final = re.compile(r"(.+)-partition-\d+")

Row = tuple[float, ...]
"""Numbers by COLUMNS, or the first MEASURED of them."""


class Wish(NamedTuple):
    """Rows that are wanted, and their order."""

    sort: str = "name"
    down: bool = False
    namespace: str = ""
    """Empty: all."""
    search: str = ""
    """Part of the name, in small letters."""
    only: str = "all"
    system: bool = False
    """True: topics of the servers themselves, too."""


def group_of(name: str) -> str:
    """Return the topic of which a name may be a partition.

    >>> group_of("persistent://a/b/c-partition-11"), group_of("persistent://a/b/c")
    ('persistent://a/b/c', 'persistent://a/b/c')
    """
    found = _PARTITION.fullmatch(name)
    return name if found is None else found[1]


class TopicTable:
    """Rows of one moment. `fill` it before use."""

    def __init__(self, number: int, at_ms: int) -> None:
        """`number`: of the table, ascending; `at_ms`: when it was made."""
        self.number = number
        self.at_ms = at_ms
        self.names: list[str] = []
        self.columns: dict[str, array[float]] = {name: array("d") for name in COLUMNS}
        self.totals: dict[str, float] = dict.fromkeys(COLUMNS, 0.0)
        self._orders: dict[Wish, list[int]] = {}

    def fill(
        self, names: Iterable[str], measured: Iterable[Mapping[str, Row]], silent: SilentBundles = NONE_SILENT
    ) -> Generator[None, None, None]:
        """Add all rows, in the order of their names; yield between steps.

        Args:
            names: of all topics, partitions one by one, served or not.
            measured: rows by name, of each broker.
            silent: bundles of brokers that did not answer.
        """
        sums: dict[str, list[float]] = {}
        done = 0
        for parts in measured:
            for name, row in parts.items():
                _add(sums, name, [*row, 1.0, 0.0])
                done += 1
                if not done % ROWS_IN_STEP:
                    yield
        for name in names:
            if not any(name in parts for parts in measured):
                _add(sums, name, [*_NOTHING, 0.0, 1.0 if silent and silent.has(name) else 0.0])
            done += 1
            if not done % ROWS_IN_STEP:
                yield
        columns = [self.columns[name] for name in COLUMNS]
        for place, name in enumerate(in_order(list(sums)), 1):
            if name:
                self.names.append(name)
                for column, value in zip(columns, sums[name], strict=True):
                    column.append(value)
            if not place % ROWS_IN_STEP:
                yield
        for name, column in self.columns.items():
            self.totals[name] = sum(column)
            yield

    def order(self, wish: Wish) -> Generator[None, None, list[int]]:
        """Return the rows that are wanted, in order; yield between steps."""
        if (known := self._orders.get(wish)) is not None:
            return known
        names, found, runs = self.names, list[int](), list[list[tuple[Any, int]]]()
        keys: Sequence[Any] = names if wish.sort == "name" else self.columns[wish.sort]
        for start in range(0, len(names), ROWS_IN_STEP):
            places = (at for at in range(start, min(start + ROWS_IN_STEP, len(names))) if self._wanted(at, wish))
            if wish.sort == "name":
                found += places
            else:
                # Equal rows stay in the order of their names, downwards too.
                runs.append(sorted(((-keys[at] if wish.down else keys[at]), at) for at in places))
            yield
        for number, (_, at) in enumerate(merge(*runs), 1):
            found.append(at)
            if not number % ROWS_IN_STEP:
                yield
        if wish.sort == "name" and wish.down:
            found.reverse()
        while len(self._orders) >= ORDERS_MAX:
            del self._orders[next(iter(self._orders))]
        self._orders[wish] = found
        return found

    def _wanted(self, at: int, wish: Wish) -> bool:
        name, columns = self.names[at], self.columns
        if wish.namespace and wish.namespace != name.partition("://")[2].rpartition("/")[0]:
            return False
        if not wish.system and "/__" in name:
            return False
        if wish.search and wish.search not in name.lower():
            return False
        if wish.only == "active":
            return columns["messagesIn"][at] > 0 or columns["messagesOut"][at] > 0
        if wish.only == "backlog":
            return columns["backlog"][at] > 0
        if wish.only == "unconsumed":
            return columns["backlog"][at] > 0 and not columns["consumers"][at]
        return True

    def row(self, at: int) -> dict[str, Any]:
        """Return a row as JSON. What a broker measures is null where none has answered."""
        found: dict[str, Any] = {name: _short(column[at]) for name, column in self.columns.items()}
        if found["silent"] and not found["loaded"]:
            found.update(dict.fromkeys(COLUMNS[:MEASURED]))
        return {"topic": self.names[at], **found}


class Curves:
    """Latest rates of topics with traffic, for their curves."""

    def __init__(self) -> None:
        self._of: dict[str, deque[float]] = {}

    def add(self, table: TopicTable) -> Generator[None, None, None]:
        """Add the rates of a table; yield between steps."""
        before, now = self._of, dict[str, deque[float]]()
        for at, (name, rate) in enumerate(zip(table.names, table.columns["messagesIn"], strict=True), 1):
            curve = before.get(name)
            if curve is None and rate and len(now) < CURVES_MAX:
                curve = deque(maxlen=POINTS)
            if curve is not None:
                curve.append(rate)
                if any(curve):
                    now[name] = curve
            if not at % ROWS_IN_STEP:
                yield
        self._of = now

    def of(self, name: str) -> list[float]:
        """Return the latest rates of a topic, the newest last; [] without traffic."""
        return [_short(each) for each in self._of.get(name, ())]


def in_order(names: list[str]) -> Iterator[str]:
    """Yield names in order, and empty ones while runs are sorted: one for each name, so that a caller can step."""
    runs: list[list[str]] = []
    for start in range(0, len(names), ROWS_IN_STEP):
        runs.append(sorted(names[start : start + ROWS_IN_STEP]))
        yield from ("" for _ in runs[-1])
    yield from merge(*runs)


def _add(sums: dict[str, list[float]], name: str, row: list[float]) -> None:
    group = group_of(name)
    row.append(0.0 if group == name else 1.0)
    known = sums.get(group)
    if known is None:
        sums[group] = row
    else:
        sums[group] = list(map(sum, zip(known, row, strict=True)))


def _short(value: float) -> float:
    """Return a number that is as short as its use allows."""
    return int(value) if value == int(value) else round(value, 2)

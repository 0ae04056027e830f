"""Metrics under the names that Pulsar's and BookKeeper's dashboards know, for Prometheus.

Hot paths keep plain integers; what is registered here is how to read them, and they are read when somebody scrapes:

    metrics = Metrics()
    metrics.counter("pulsar_in_messages_total", "Messages received.", lambda: stats.messages_in)
    metrics.family("gauge", "pulsar_msg_backlog", "Entries not acknowledged.", ("topic",), backlog_by_topic)

A server with 10,000 topics has 100,000 samples: `lines` gives them one by one, read as they are asked for, so that the
web port can write them in short steps (`quire.service.http`). A number that is a sum over thousands of things is read
by a generator that yields None now and then.

A counter whose name does not end in _total (BookKeeper has such) is exposed without a type, for
the text format would rename it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, isnan
from typing import Literal, NamedTuple, Protocol, TypeAlias

import trio

from quire.service.measuring.summaries import LATENCY_MS as LATENCY_MS
from quire.service.measuring.summaries import QUANTILES, WINDOW_S, Times
from quire.service.measuring.summaries import Histogram as Histogram

Kind: TypeAlias = Literal["counter", "gauge"]
Type: TypeAlias = Literal["counter", "gauge", "histogram", "summary"]
Samples: TypeAlias = Iterable[tuple[Sequence[str], float] | None]
"""Label values, in the order of the family's label names, and the number. None: no sample yet; other tasks may run
here."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

LINES_TOGETHER = 256
"""Lines that are made before other tasks run: about 2 ms."""


class Declared(NamedTuple):
    """A family of metrics, as the documentation lists it."""

    type: Type
    name: str
    doc: str
    label_names: tuple[str, ...] = ()


class MetricTable(Protocol):
    """Many families whose samples are made together, because they are of the same things."""

    def declared(self) -> Sequence[Declared]:
        """Return the families, in the order of their lines."""

    def lines(self) -> Iterator[str]:
        """Yield the text: at most LINES_TOGETHER whole lines each time; "" for no text yet, where other tasks may
        run."""


@dataclass(frozen=True, slots=True)
class _Family:
    kind: Kind
    name: str
    doc: str
    label_names: tuple[str, ...]
    read: Callable[[], Samples]


@dataclass(frozen=True, slots=True)
class _HistogramFamily:
    name: str
    doc: str
    label_names: tuple[str, ...]
    read: Callable[[], Iterable[tuple[Sequence[str], Histogram]]]


@dataclass(frozen=True, slots=True)
class _SummaryFamily:
    name: str
    doc: str
    label_names: tuple[str, ...]
    read: Callable[[], Iterable[tuple[Sequence[str], Times]]]


class Metrics:
    """Metrics of one server."""

    def __init__(self, *, window_s: float = WINDOW_S) -> None:
        """`window_s`: time over which the quantiles of summaries are taken."""
        self._window_s = window_s
        self._families: dict[str, _Family | _HistogramFamily | _SummaryFamily] = {}
        self._tables: list[MetricTable] = []

    def counter(self, name: str, doc: str, read: Callable[[], float]) -> None:
        """Register a number that only grows while the server runs, without labels."""
        self.family("counter", name, doc, (), lambda: (((), read()),))

    def gauge(self, name: str, doc: str, read: Callable[[], float]) -> None:
        """Register a number that goes up and down, without labels."""
        self.family("gauge", name, doc, (), lambda: (((), read()),))

    def family(self, kind: Kind, name: str, doc: str, label_names: Sequence[str], read: Callable[[], Samples]) -> None:
        """Register one number for each set of label values."""
        self._add(_Family(kind, name, doc, tuple(label_names), read))

    def histogram(self, name: str, doc: str, histogram: Histogram) -> None:
        """Register a histogram without labels, read in place."""
        self._add(_HistogramFamily(name, doc, (), lambda: (((), histogram),)))

    def histogram_family(
        self,
        name: str,
        doc: str,
        label_names: Sequence[str],
        read: Callable[[], Iterable[tuple[Sequence[str], Histogram]]],
    ) -> None:
        """Register one histogram for each set of label values."""
        self._add(_HistogramFamily(name, doc, tuple(label_names), read))

    def summary(
        self,
        name: str,
        doc: str,
        label_names: Sequence[str],
        read: Callable[[], Iterable[tuple[Sequence[str], Times]]],
    ) -> None:
        """Register quantiles, a count and a sum for each set of label values."""
        self._add(_SummaryFamily(name, doc, tuple(label_names), read))

    def table(self, table: MetricTable) -> None:
        """Register many families whose samples are made together."""
        for family in table.declared():
            self._check_name(family.name)
        self._tables.append(table)

    def _add(self, family: _Family | _HistogramFamily | _SummaryFamily) -> None:
        self._check_name(family.name)
        self._families[family.name] = family

    def _check_name(self, name: str) -> None:
        assert name not in {family.name for family in self.declared()}, f"metric {name} is registered twice"

    def declared(self) -> Iterator[Declared]:
        """Yield every family, for documentation."""
        for family in self._families.values():
            kind: Type = "gauge"
            if isinstance(family, _Family):
                kind = family.kind
            else:
                kind = "histogram" if isinstance(family, _HistogramFamily) else "summary"
            yield Declared(kind, family.name, family.doc, family.label_names)
        for table in self._tables:
            yield from table.declared()

    def lines(self) -> Iterator[str]:
        """Yield the text that Prometheus scrapes, CONTENT_TYPE, with line ends: a line, or up to LINES_TOGETHER of a
        table; "" for a None among the samples.

        Each number is read when its line is requested."""
        for family in list(self._families.values()):
            if isinstance(family, _Family):
                yield from _number_lines(family)
            elif isinstance(family, _HistogramFamily):
                yield from _bucket_lines(family)
            else:
                yield from _summary_lines(family, self._window_s)
        for table in self._tables:
            yield from table.lines()

    def exposition(self) -> bytes:
        """Return all of `lines` at once, for few samples."""
        return "".join(self.lines()).encode()


def head(name: str, doc: str, kind: str) -> str:
    """Return the lines in front of a family: HELP and TYPE."""
    escaped = doc.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {escaped}\n# TYPE {name} {kind}\n"


def exposed_type(kind: Type, name: str) -> str:
    """Return the type in the text: a counter without _total is untyped, because parsers would rename it."""
    return "untyped" if kind == "counter" and not name.endswith("_total") else kind


def labels_text(order: Sequence[tuple[str, int]], values: Sequence[str]) -> str:
    """Return comma-separated `name="value"`. `order`: the names as they are written, and the indexes of their
    values."""
    parts = []
    for name, index in order:
        value = values[index]
        if "\\" in value or '"' in value or "\n" in value:
            value = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        parts.append(f'{name}="{value}"')
    return ",".join(parts)


def written(value: float) -> str:
    """Return a number as the text format has it.

    >>> written(3), written(2.5e-7), written(float("inf")), written(float("nan"))
    ('3.0', '2.5e-07', '+Inf', 'NaN')
    """
    value = float(value)
    if isfinite(value):
        return repr(value)
    return "NaN" if isnan(value) else "+Inf" if value > 0 else "-Inf"


def _order(names: Sequence[str]) -> list[tuple[str, int]]:
    return sorted((name, index) for index, name in enumerate(names))


def _number_lines(family: _Family) -> Iterator[str]:
    name = family.name
    yield head(name, family.doc, exposed_type(family.kind, name))
    order = _order(family.label_names)
    for sample in family.read():
        if sample is None:
            yield ""
        elif order:
            yield f"{name}{{{labels_text(order, sample[0])}}} {written(sample[1])}\n"
        else:
            yield f"{name} {written(sample[1])}\n"


def _bucket_lines(family: _HistogramFamily) -> Iterator[str]:
    name = family.name
    yield head(name, family.doc, "histogram")
    order = _order(family.label_names)
    bucket_order = _order((*family.label_names, "le"))
    for label_values, histogram in family.read():
        below = 0
        for bound, count in zip((*histogram.bounds, None), histogram.counts, strict=True):
            below += count
            le = "+Inf" if bound is None else f"{bound:g}"
            yield f"{name}_bucket{{{labels_text(bucket_order, (*label_values, le))}}} {written(below)}\n"
        labels = f"{{{labels_text(order, label_values)}}}" if order else ""
        yield f"{name}_count{labels} {written(below)}\n{name}_sum{labels} {written(histogram.total)}\n"


def _summary_lines(family: _SummaryFamily, window_s: float) -> Iterator[str]:
    name = family.name
    yield head(name, family.doc, "summary")
    order = _order(family.label_names)
    quantile_order = _order((*family.label_names, "quantile"))
    for label_values, times in family.read():
        for quantile, value in zip(QUANTILES, times.quantiles(trio.current_time(), window_s), strict=True):
            yield f"{name}{{{labels_text(quantile_order, (*label_values, str(quantile)))}}} {written(value)}\n"
        labels = f"{{{labels_text(order, label_values)}}}" if order else ""
        yield f"{name}_count{labels} {written(sum(times.counts))}\n{name}_sum{labels} {written(times.total)}\n"

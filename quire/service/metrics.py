"""Metrics under the names that Pulsar's and BookKeeper's dashboards know, for Prometheus.

Hot paths keep plain integers; what is registered here is how to read them, and they are read when somebody scrapes:

    metrics = Metrics()
    metrics.counter("pulsar_in_messages_total", "Messages received.", lambda: stats.messages_in)
    metrics.family("gauge", "pulsar_msg_backlog", "Entries not acknowledged.", ("topic",), backlog_by_topic)

A server with 10,000 topics has 100,000 samples: `lines` gives them one by one, read as they are asked for, so that the
web port can write them in short steps (`quire.service.http`). A number that is a sum over thousands of things is read
by a generator that yields None now and then.

prometheus_client, whose import takes longer than a loop may be held, is only needed where `Metrics` is a collector of
one of its registries. A counter whose name does not end in _total (BookKeeper has such) is exposed without a type, for
the text format would rename it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, isnan
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

Kind: TypeAlias = Literal["counter", "gauge"]
Samples: TypeAlias = Iterable[tuple[Sequence[str], float] | None]
"""Label values, in the order of the family's label names, and the number. None: no sample yet; other tasks may run
here."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

LATENCY_MS = (0.5, 1.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 1000.0)
"""Upper bounds of Pulsar's latency buckets, in milliseconds."""


class Histogram:
    """Histogram without an object per observation. Bounds are inclusive upper bounds; one more bucket is above the
    last."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = LATENCY_MS) -> None:
        self.bounds = tuple(bounds)
        assert list(self.bounds) == sorted(set(self.bounds)), f"bounds must be ascending: {bounds}"
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0
        """Sum of everything observed."""

    def observe(self, value: float, count: int = 1) -> None:
        """Note `count` observations of `value`."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count


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


class Metrics:
    """Metrics of one server; a collector for prometheus_client, in a registry of its own unless one is given."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._families: dict[str, _Family | _HistogramFamily] = {}
        if registry is not None:
            registry.register(self)

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

    def _add(self, family: _Family | _HistogramFamily) -> None:
        assert family.name not in self._families, f"metric {family.name} is registered twice"
        self._families[family.name] = family

    def collect(self) -> Iterator[Metric]:
        """Read everything; called by prometheus_client at scrape time."""
        for family in list(self._families.values()):
            if isinstance(family, _Family):
                yield _numbers(family)
            else:
                yield _buckets(family)

    def describe(self) -> Iterable[Metric]:
        """Nothing is read when the collector is registered."""
        return ()

    def lines(self) -> Iterator[str]:
        """Yield the text that Prometheus scrapes, CONTENT_TYPE, line by line, with line ends; "" for a None among the
        samples.

        Each number is read when its line is requested."""
        for family in list(self._families.values()):
            yield from _number_lines(family) if isinstance(family, _Family) else _bucket_lines(family)

    def exposition(self) -> bytes:
        """Return all of `lines` at once, for few samples."""
        return "".join(self.lines()).encode()


def _head(name: str, doc: str, kind: str) -> str:
    escaped = doc.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {escaped}\n# TYPE {name} {kind}\n"


def _labels(order: Sequence[tuple[str, int]], values: Sequence[str]) -> str:
    """Return comma-separated `name="value"`. `order`: the names as they are written, and the indexes of their
    values."""
    parts = []
    for name, index in order:
        value = values[index]
        if "\\" in value or '"' in value or "\n" in value:
            value = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        parts.append(f'{name}="{value}"')
    return ",".join(parts)


def _written(value: float) -> str:
    """
    >>> _written(3), _written(2.5e-7), _written(float("inf")), _written(float("nan"))
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
    kind = family.kind if family.kind == "gauge" or name.endswith("_total") else "untyped"
    yield _head(name, family.doc, kind)
    order = _order(family.label_names)
    for sample in family.read():
        if sample is None:
            yield ""
        elif order:
            yield f"{name}{{{_labels(order, sample[0])}}} {_written(sample[1])}\n"
        else:
            yield f"{name} {_written(sample[1])}\n"


def _bucket_lines(family: _HistogramFamily) -> Iterator[str]:
    name = family.name
    yield _head(name, family.doc, "histogram")
    order = _order(family.label_names)
    bucket_order = _order((*family.label_names, "le"))
    for label_values, histogram in family.read():
        below = 0
        for bound, count in zip((*histogram.bounds, None), histogram.counts, strict=True):
            below += count
            le = "+Inf" if bound is None else f"{bound:g}"
            yield f"{name}_bucket{{{_labels(bucket_order, (*label_values, le))}}} {_written(below)}\n"
        labels = f"{{{_labels(order, label_values)}}}" if order else ""
        yield f"{name}_count{labels} {_written(below)}\n{name}_sum{labels} {_written(histogram.total)}\n"


def _numbers(family: _Family) -> Metric:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, UnknownMetricFamily

    metric: CounterMetricFamily | GaugeMetricFamily | UnknownMetricFamily
    if family.kind == "gauge":
        metric = GaugeMetricFamily(family.name, family.doc, labels=family.label_names)
    elif family.name.endswith("_total"):
        metric = CounterMetricFamily(family.name, family.doc, labels=family.label_names)
    else:
        metric = UnknownMetricFamily(family.name, family.doc, labels=family.label_names)
    for sample in family.read():
        if sample is not None:
            metric.add_metric(*sample)
    return metric


def _buckets(family: _HistogramFamily) -> Metric:
    from prometheus_client.metrics_core import HistogramMetricFamily

    metric = HistogramMetricFamily(family.name, family.doc, labels=family.label_names)
    for label_values, histogram in family.read():
        buckets: list[tuple[str, float]] = []
        below = 0
        for bound, count in zip((*histogram.bounds, None), histogram.counts, strict=True):
            below += count
            buckets.append(("+Inf" if bound is None else f"{bound:g}", below))
        metric.add_metric(label_values, buckets, sum_value=histogram.total)
    return metric

"""quire.service.metrics"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from quire.service.metrics import Histogram, Metrics


def samples(metrics: Metrics) -> dict[str, float]:
    """Return every sample of a scrape, as `name{label=value}`."""
    found = {}
    for family in text_string_to_metric_families(metrics.exposition().decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_numbers_are_read_when_somebody_scrapes() -> None:
    metrics, number = Metrics(), [1]
    metrics.counter("pulsar_in_messages_total", "Messages.", lambda: number[0])
    metrics.gauge("pulsar_health", "One or zero.", lambda: number[0])
    assert samples(metrics) == {"pulsar_in_messages_total": 1, "pulsar_health": 1}
    number[0] = 5
    assert samples(metrics) == {"pulsar_in_messages_total": 5, "pulsar_health": 5}


def test_names_of_the_originals_stay_as_they_are() -> None:
    metrics = Metrics()
    metrics.counter("bookie_WRITE_BYTES", "Bytes.", lambda: 3)
    assert samples(metrics) == {"bookie_WRITE_BYTES": 3}


def test_a_family_has_a_number_for_each_set_of_labels() -> None:
    metrics = Metrics()
    metrics.family("gauge", "pulsar_msg_backlog", "Entries.", ("topic",), lambda: [(("a",), 1), (('b"c',), 2)])
    assert samples(metrics) == {"pulsar_msg_backlog{topic=a}": 1, 'pulsar_msg_backlog{topic=b"c}': 2}


def test_a_histogram_counts_what_is_at_most_each_bound() -> None:
    metrics, histogram = Metrics(), Histogram((1, 5))
    metrics.histogram("latency", "Milliseconds.", histogram)
    for value in (0.5, 1, 1.1, 6):
        histogram.observe(value)
    histogram.observe(2, count=3)
    assert samples(metrics) == {
        "latency_bucket{le=1}": 2,
        "latency_bucket{le=5}": 6,
        "latency_bucket{le=+Inf}": 7,
        "latency_count": 7,
        "latency_sum": pytest.approx(14.6),
    }


def test_a_histogram_family_has_one_for_each_set_of_labels() -> None:
    metrics, histogram = Metrics(), Histogram((1,))
    histogram.observe(1)
    metrics.histogram_family("latency", "Milliseconds.", ("topic",), lambda: [(("a",), histogram)])
    assert samples(metrics)["latency_bucket{le=1,topic=a}"] == 1


def test_a_name_is_registered_once() -> None:
    metrics = Metrics()
    metrics.gauge("twice", "", lambda: 0)
    with pytest.raises(AssertionError, match="registered twice"):
        metrics.gauge("twice", "", lambda: 0)


def test_a_scrape_does_not_wait_for_prometheus_client_to_be_loaded() -> None:
    code = (
        "import sys; from quire.service.metrics import Metrics; m = Metrics(); m.gauge('g', '', lambda: 1)\n"
        "assert m.exposition(); assert 'prometheus_client' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_text_is_what_prometheus_client_makes_of_the_same_numbers() -> None:
    from prometheus_client.exposition import generate_latest

    metrics, histogram = Metrics(), Histogram()
    histogram.observe(3, count=7)
    values = [0, 1, -1, 0.5, 123456, 2.5e-7, float("inf"), float("-inf"), float("nan")]
    metrics.family("gauge", "g", 'doc \\ "x"\nsecond', ("z", "a"), lambda: [((str(n), 'q"\\\n'), n) for n in values])
    metrics.family("counter", "c_total", "c", ("topic",), lambda: [(("persistent://a/b/€",), 5), None])
    metrics.counter("bookie_WRITE", "w", lambda: 3)
    metrics.histogram("plain", "p", histogram)
    metrics.histogram_family("h", "h", ("x", "m"), lambda: [(("1", "2"), histogram)])
    text = metrics.exposition()

    class Read:
        """The families as prometheus_client reads them."""

        def collect(self) -> Iterator[Any]:
            yield from text_string_to_metric_families(text.decode())

    registry = CollectorRegistry()
    registry.register(Read())
    untyped = text.replace(b" untyped\n", b" unknown\n")
    assert generate_latest(registry).replace(b" untyped\n", b" unknown\n") == untyped


def test_samples_are_read_one_by_one_as_their_lines_are_asked_for() -> None:
    metrics, read = Metrics(), [0]

    def samples():
        for number in range(1000):
            read[0] += 1
            yield (str(number),), number

    metrics.family("gauge", "g", "", ("n",), samples)
    lines = metrics.lines()
    for _ in range(11):  # the head, and ten samples
        next(lines)
    assert read == [10]

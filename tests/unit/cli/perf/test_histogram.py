"""Histograms and their log: quire/cli/perf/histogram.py, histogram_log.py.

`written_by_java.hlog` was written by HistogramLogWriter of HdrHistogram 2.2.2, and the figures in this file are those
that the same program printed for the same values: tests/interop/pulsar_perf/src/main/java/Hdr.java.
"""

from __future__ import annotations

import base64
import io
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.cli.perf.histogram import LatencyHistogram
from quire.cli.perf.histogram_log import HEAD, HistogramLog, encoded, line

HOUR = 3_600_000_000
JAVA = Path(__file__).parent / "testdata" / "written_by_java.hlog"
VALUES = st.lists(st.integers(0, HOUR), min_size=1)


def values_of_java() -> list[int]:
    """Return the values that the Java program records: quadratic, so that all magnitudes are there."""
    return [number * number * 13 % 40_000_000 // (1 + number % 7 * 1000) for number in range(20_000)]


def recorded(values: list[int], digits: int = 3) -> LatencyHistogram:
    made = LatencyHistogram(HOUR, digits)
    for value in values:
        made.record(value)
    return made


def test_percentiles_mean_and_maximum_are_those_of_the_original() -> None:
    figures = JAVA.with_name("printed_by_java.txt").read_text().split()
    found = recorded(values_of_java())
    percents = (50, 90, 95, 99, 99.9, 99.99, 99.999, 100)
    assert [str(each) for each in found.percentiles(percents)] == figures[:8]
    assert [f"{found.mean():.6f}", str(found.maximum)] == figures[8:]


def test_a_log_has_the_bytes_of_the_original() -> None:
    text = JAVA.read_text()
    head, row = text[: len(HEAD)], text[len(HEAD) :].splitlines()[0]
    assert head == HEAD
    start, length, highest, histogram = row.split(",")
    ours = line(recorded(values_of_java()), float(start), float(length))
    assert ours.split(",")[:3] == [start, length, highest]
    assert zlib.decompress(base64.b64decode(histogram)[8:]) == encoded(recorded(values_of_java()))
    assert base64.b64decode(ours.split(",")[3])[:4] == base64.b64decode(histogram)[:4]


def test_a_tag_stands_before_the_start() -> None:
    file = io.StringIO()
    HistogramLog(file).write(LatencyHistogram(100), 5.0, 1.5, "ack")
    assert file.getvalue().removeprefix(HEAD).startswith("Tag=ack,5.000,1.500,0.000,HIST")


@given(VALUES, st.floats(0, 100))
def test_a_percentile_is_within_a_thousandth_of_the_value_there(values: list[int], percent: float) -> None:
    found = recorded(values).percentile(percent)
    exact = sorted(values)[max(min(-int(-percent * len(values) // 100), len(values)), 1) - 1]
    neighbours = [each for each in values if abs(each - found) <= max(each * 0.001, 0)]
    assert neighbours
    assert found >= min(values)
    assert percent < 100 or found >= exact


@given(VALUES, VALUES)
def test_a_merge_is_the_histogram_of_both(first: list[int], second: list[int]) -> None:
    merged = recorded(first)
    merged.merge(recorded(second))
    both = recorded(first + second)
    assert (encoded(merged), merged.mean(), merged.maximum) == (encoded(both), both.mean(), both.maximum)


def test_a_stall_counts_for_what_it_kept_from_being_sent() -> None:
    found = LatencyHistogram(HOUR)
    found.record_expected(1000, 100)
    assert (found.total, found.percentile(50), found.maximum) == (10, 500, 1000)
    plain = LatencyHistogram(HOUR)
    plain.record_expected(1000, 0)
    assert plain.total == 1


def test_a_value_above_the_highest_counts_as_the_highest() -> None:
    found = LatencyHistogram(1000)
    found.record(10**9)
    found.record(-5)
    assert (found.total, found.maximum, found.percentile(0.1)) == (2, 1000, 0)


def test_an_empty_histogram_is_all_zero() -> None:
    found = LatencyHistogram(1000)
    assert (found.percentile(99), found.mean(), found.maximum, found.steps()) == (0, 0.0, 0, [])


@pytest.mark.parametrize(("highest", "digits"), [(1, 3), (100, 0), (100, 6)])
def test_impossible_bounds_are_refused(highest: int, digits: int) -> None:
    with pytest.raises(ValueError, match="a histogram up to"):
        LatencyHistogram(highest, digits)

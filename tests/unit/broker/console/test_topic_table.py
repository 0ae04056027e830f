"""The table of topics: order, filter, partitions as one row, and how long a step holds the event loop."""

from __future__ import annotations

import gc
from collections.abc import Generator
from time import thread_time
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.console.topics.silent import SilentBundles
from broker.console.topics.table import COLUMNS, CURVES_MAX, MEASURED, POINTS, Curves, Row, TopicTable, Wish

T = TypeVar("T")


def through(steps: Generator[Any, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: T = done.value
            return found


def row(messages_in: float = 0, backlog: float = 0, consumers: float = 0) -> Row:
    return (messages_in, 0, 0, 0, backlog, 0, 0, consumers, 0)


def table(rows: dict[str, Row], *names: str) -> TopicTable:
    made = TopicTable(1, 0)
    through(made.fill([*rows, *names], [rows]))
    return made


def names(made: TopicTable, **wish: Any) -> list[str]:
    return [made.names[at] for at in through(made.order(Wish(**wish)))]


def test_topics_that_no_broker_serves_are_rows_too():
    made = table({"persistent://a/b/served": row(2)}, "persistent://a/b/idle")
    assert names(made) == ["persistent://a/b/idle", "persistent://a/b/served"]
    assert [made.row(at)["loaded"] for at in (0, 1)] == [0, 1]


def test_topics_of_a_broker_without_an_answer_have_no_numbers_instead_of_zeros():
    rows = {"persistent://a/b/served": row(2), "persistent://a/b/c-partition-0": row(1)}
    made = TopicTable(1, 0)
    idle = ("persistent://a/b/idle", "persistent://a/b/c-partition-1", "persistent://a/other/idle")
    through(made.fill([*rows, *idle], [rows], SilentBundles(["a/b/0x00000000_0xffffffff", "a/none/0x_"])))
    found = {each["topic"]: each for each in map(made.row, range(4))}
    assert found["persistent://a/b/idle"] == {
        "topic": "persistent://a/b/idle",
        **dict.fromkeys(COLUMNS[:MEASURED]),
        **dict(loaded=0, silent=1, partitions=0),
    }
    partly = found["persistent://a/b/c"]
    assert (partly["messagesIn"], partly["loaded"], partly["silent"], partly["partitions"]) == (1, 1, 1, 2)
    for name in ("persistent://a/b/served", "persistent://a/other/idle"):
        assert (found[name]["silent"], found[name]["backlog"]) == (0, 0)
    assert made.totals["silent"] == 2


def test_a_topic_is_silent_only_in_the_slice_of_its_bundle():
    """The hash of persistent://public/default/orders is 0xb135b9dc."""
    for span, expected in (
        ("0x80000000_0xc0000000", True),
        ("0x00000000_0xb135b9dc", False),
        ("0xb135b9dc_0xffffffff", True),
        ("0xc0000000_0xffffffff", False),
    ):
        silent = SilentBundles([f"public/default/{span}", "public/default/0x00000000_0x10000000"])
        assert silent.has("persistent://public/default/orders") is expected, span


def test_partitions_are_one_row_with_their_sums_and_their_number():
    made = table({f"persistent://a/b/c-partition-{number}": row(1.5, 2) for number in range(3)})
    assert made.row(0) | {"bytesIn": 0} == {
        "topic": "persistent://a/b/c",
        **dict.fromkeys(COLUMNS, 0),
        "messagesIn": 4.5,
        "backlog": 6,
        "loaded": 3,
        "partitions": 3,
    }


@given(st.lists(st.integers(0, 5), max_size=30), st.booleans())
def test_rows_are_in_order_and_equal_ones_in_the_order_of_their_names(rates: list[int], down: bool):
    rows = {f"persistent://a/b/{number:02}": row(rate) for number, rate in enumerate(rates)}
    expected = sorted(rows, key=lambda name: (-rows[name][0] if down else rows[name][0], name))
    assert names(table(rows), sort="messagesIn", down=down) == expected


def test_a_search_a_namespace_and_a_kind_choose_rows():
    rows = {
        "persistent://a/b/Busy": row(1),
        "persistent://a/b/lagging": row(backlog=3, consumers=1),
        "persistent://a/bb/left": row(backlog=3),
        "persistent://a/b/__change_events": row(),
    }
    made = table(rows)
    assert names(made, search="bus") == ["persistent://a/b/Busy"]
    assert names(made, namespace="a/bb") == ["persistent://a/bb/left"]
    assert names(made, only="active") == ["persistent://a/b/Busy"]
    assert names(made, only="backlog") == ["persistent://a/b/lagging", "persistent://a/bb/left"]
    assert names(made, only="unconsumed") == ["persistent://a/bb/left"]
    assert len(names(made)) == 3
    assert len(names(made, system=True)) == 4


def test_curves_are_kept_of_topics_with_traffic_only_and_not_too_many():
    curves = Curves()
    busy = {f"persistent://a/b/{number:05}": row(1) for number in range(CURVES_MAX + 1)}
    through(curves.add(table(busy, "persistent://a/b/idle")))
    assert curves.of("persistent://a/b/idle") == []
    assert sum(bool(curves.of(name)) for name in busy) == CURVES_MAX
    quiet = table({name: row() for name in list(busy)[:1]})
    for _ in range(POINTS):
        through(curves.add(quiet))
    assert curves.of(next(iter(busy))) == []


@pytest.mark.full
def test_no_step_over_100_000_topics_holds_the_event_loop():
    """Steps are counted in CPU time, since the machine has other work; the median of three."""
    rows = {
        f"persistent://public/default/topic-{number * 7919 % 100_000:06}": row(number % 100)
        for number in range(100_000)
    }
    longest = []
    for _ in range(3):
        made, steps = TopicTable(1, 0), list[float]()
        gc.collect()
        gc.disable()
        try:
            for each in (made.fill(rows, [rows]), made.order(Wish("messagesIn", True)), made.order(Wish(search="7"))):
                at = thread_time()
                for _ in each:
                    now = thread_time()
                    steps.append(now - at)
                    at = thread_time()
        finally:
            gc.enable()
        longest.append(sorted(steps)[-3])
    assert sorted(longest)[1] < 0.010, longest

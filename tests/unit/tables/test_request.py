"""Arguments of a table as options of the source. Covers bounds and request."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from quire.spark.errors import OptionError
from quire.spark.offsets import LATEST_MARK, Boundary, Place
from quire.spark.options.parse import COLUMN_NAMES
from quire.tables.request import request_options

ORDERS = "persistent://public/default/orders"


def request(topics: Any = "orders", options: Any = None, **more: Any) -> Any:
    return request_options(topics, options=options or {}, **more)


def test_a_name_alone_reads_all_columns_from_the_earliest_entry_to_the_latest() -> None:
    made = request()
    assert made.topics == (ORDERS,)
    assert made.columns == COLUMN_NAMES
    assert (made.starting.kind, made.ending.kind, made.read_via) == ("earliest", "latest", "auto")


def test_several_names_and_columns_are_lists() -> None:
    made = request(["orders", "acme/shop/x"], columns=["value", "__key"])
    assert made.topics == (ORDERS, "persistent://acme/shop/x")
    assert made.columns == ("value", "__key")


@pytest.mark.parametrize(
    ("bound", "ms"),
    [
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1000),
        (datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC), 1001),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
        ("1970-01-01T00:00:02Z", 2000),
        ("1970-01-01T01:00:02+01:00", 2000),
        (3000, 3000),
    ],
)
def test_a_time_is_the_first_millisecond_at_or_after_it(bound: Any, ms: int) -> None:
    assert request(start=bound).starting == Boundary(kind="timestamp", timestamp_ms=ms)
    assert request(end=bound).ending == Boundary(kind="timestamp", timestamp_ms=ms)


def test_positions_are_of_one_topic_or_by_partition() -> None:
    assert request(start="12:40").starting == Boundary(kind="places", places=((ORDERS, Place(12, 40)),))
    found = request(end={"orders-partition-0": "12:40", "orders-partition-1": -1}).ending.places
    assert found == ((f"{ORDERS}-partition-0", Place(12, 40)), (f"{ORDERS}-partition-1", LATEST_MARK))


@pytest.mark.parametrize(
    ("topics", "more", "text"),
    [
        ("", {}, "give the name of a topic"),
        ([], {}, "give the name of a topic"),
        ("a,b", {}, "give several topics as a list"),
        ("orders", {"columns": "value"}, "give a list of names"),
        ("orders", {"columns": ["nope"]}, "there is no column 'nope'"),
        ("orders", {"start": datetime(2026, 1, 31)}, "it has no time zone"),
        ("orders", {"start": "2026-01-31"}, "it has no time zone"),
        ("orders", {"start": "yesterday"}, "option 'start' is 'yesterday': give \"earliest\""),
        ("orders", {"end": -5}, "at least 0"),
        ("orders", {"end": True}, "ms since 1970"),
        ("orders", {"start": datetime(1969, 1, 1, tzinfo=UTC)}, "before 1970"),
        (["a", "b"], {"start": "12:40"}, "a position is of one topic"),
        ("orders", {"start": "latest"}, "has no rows"),
        ("orders", {"decode": "json"}, "give one of none, schema"),
        ("orders", {"start": 5, "options": {"startingOffsets": "earliest"}}, "is given too"),
        ("orders", {"columns": ["value"], "options": {"Columns": "value"}}, "given twice"),
        ("orders", {"service_url": "pulsar://h", "options": {"serviceUrl": "pulsar://h"}}, "given twice"),
        ("orders", {"options": {"subscription": "s"}}, "read without a subscription"),
        ("orders", {"options": {"kafka.group.id": "s"}}, "read without a subscription"),
        ("orders", {"options": {"maxOffsetsPerTrigger": "5"}}, "it is for a stream"),
        ("orders", {"options": {"minPartitions": "5"}}, "give parallel=<ranges read at a time>"),
        ("orders", {"options": {"topicsPattern": "x.*"}}, "a table has topics by name"),
        ("orders", {"decode": "schema", "options": {"onDecodeError": "deadLetter"}}, "a table does not write"),
        ("orders", {"options": {"compression": "lz4"}}, "it is for writing"),
        ("orders", {"options": {"readvai": "broker"}}, "did you mean"),
    ],
)
def test_what_cannot_be_obeyed_is_refused(topics: Any, more: Any, text: str) -> None:
    with pytest.raises(OptionError, match="(?s)" + text.replace("(", r"\(")):
        request(topics, **more)


def test_further_options_are_those_of_the_source() -> None:
    made = request(options={"readVia": "bookies", "failOnDataLoss": False, "pollTimeoutMs": 500, "authToken": "abc"})
    assert (made.read_via, made.fail_on_data_loss, made.poll_timeout_ms) == ("bookies", False, 500)
    assert made.authentication.token.text == "abc"

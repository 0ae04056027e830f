"""Planned ranges of one topic, and their rows from given deliveries, without connections."""

from __future__ import annotations

from typing import Any

from quire.client.deliveries import Deliveries
from quire.spark.options.parse import Options
from quire.spark.planning.ranges import LedgerRange, TopicRange
from quire.spark.reading.columns import Columns
from quire.spark.reading.scan import read_range
from tests.unit.spark.entries import plain

TOPIC = "persistent://public/default/x"


def options(**changed: str) -> Options:
    return Options.parse({"topic": TOPIC, **changed}, use="batch")


def work(*ranges: tuple[int, int, int], earlier: tuple[tuple[int, int, int], ...] = (), start: int = 0) -> TopicRange:
    return TopicRange(
        partition=TOPIC,
        ranges=tuple(LedgerRange(*each) for each in ranges),
        earlier=tuple(LedgerRange(*each) for each in earlier),
        start_batch_index=start,
    )


def deliver(*places: tuple[int, int], entry: bytes | None = None) -> Deliveries:
    return Deliveries(
        [ledger for ledger, _ in places],
        [number for _, number in places],
        [entry or plain(b"%d:%d" % place) for place in places],
    )


def read(task: TopicRange, *fed: Deliveries, columns: tuple[str, ...] = ("value",), **changed: str) -> list[Any]:
    batches = read_range(task, options(**changed), Columns(columns, task.partition), iter(fed))
    return [row if len(columns) > 1 else row[columns[0]] for batch in batches for row in batch.to_pylist()]

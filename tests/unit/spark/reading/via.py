"""Reads of a cluster in both ways, without Spark, and links to bookies that fail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import pytest
import trio

from quire.client.client import Reader
from quire.client.errors import ClientError
from quire.client.message_id import MessageId
from quire.ledger.bookies.link import BookieLink
from quire.ledger.errors import BookieUnavailableError, NoSuchEntryError
from quire.ledger.reading import known
from quire.spark import runtime as runtime_module
from quire.spark.errors import SparkSourceError
from quire.spark.options.parse import Options
from quire.spark.planning.planner import Planner
from quire.spark.planning.tasks import TopicRange
from quire.spark.reading import bookie_entries
from quire.spark.reading.columns import Columns
from quire.spark.reading.scan import RangeScan, read_range
from quire.world.doors import World

Planned = tuple[Options, list[TopicRange]]
Rows = list[list[dict[str, Any]]]


class Links:
    """Links to bookies, some of which fail."""

    def __init__(self) -> None:
        self.lost: Collection[str] = ()
        """Ids of bookies that cannot be reached."""
        self.damaged: Collection[str] = ()
        """Ids of bookies whose answers have a wrong last byte."""
        self.used: set[str] = set()
        """Ids of bookies that were asked."""

    def connect(self, world: World, nursery: trio.Nursery, bookie_id: str) -> BookieLink:
        self.used.add(bookie_id)
        if bookie_id in self.lost:
            raise BookieUnavailableError(f"bookie {bookie_id} cannot be reached: planted")
        link = known.connect_by_tcp(world, nursery, bookie_id)
        if bookie_id in self.damaged:
            take = link.set_receiver
            link.set_receiver = lambda receive: take(partial(_damaged, receive))  # type: ignore[method-assign]
        return link


def _damaged(receive: Callable[[Any], None], chunk: Any) -> None:
    copy = bytearray(chunk)
    copy[-1] ^= 1
    receive(memoryview(copy))


def begin(links: Links) -> None:
    """Begin anew in this process, as a new worker does, with these links to bookies."""
    runtime_module.close_runtime()
    bookie_entries.forget()
    runtime_module._runtime = runtime_module.Runtime(
        open_bookies=partial(known.open_known_reader, connect=links.connect)
    )


def plan(options: Mapping[str, str], topic: str, via: str, **more: str) -> Planned:
    """Plan a batch read."""
    made = Options.parse({**options, "topic": topic, "readVia": via, **more}, use="batch")
    planner = Planner(made)
    try:
        return made, planner.batch()
    finally:
        planner.close()


def read(made: Options, tasks: list[TopicRange]) -> Rows:
    """Return the rows of each task."""
    return [
        [row for batch in read_range(task, made, Columns(made.columns, task.partition)) for row in batch.to_pylist()]
        for task in tasks
    ]


def outcome(options: Mapping[str, str], topic: str, via: str, **more: str) -> Rows | str:
    """Return the rows of a batch read, or its error."""
    try:
        return read(*plan(options, topic, via, **more))
    except (SparkSourceError, ClientError) as error:
        return f"{type(error).__name__}: {error}"


def values(rows: Rows) -> list[bytes]:
    """Return the values of all tasks in order."""
    return [row["value"] for task in rows for row in task]


def forget_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all bookies deny all entries, as after the collection of deleted ledgers."""

    async def denied(_reader: object, ledger_id: int, _metadata: object, first: int, _last: int, _size: int) -> None:
        await trio.lowlevel.checkpoint()
        raise NoSuchEntryError(f"entry {ledger_id}:{first} cannot be read: planted")

    monkeypatch.setattr(known.KnownReader, "read", denied)


def record_readers(monkeypatch: pytest.MonkeyPatch) -> list[MessageId]:
    """Return a list that receives the start of each reader that is opened at a broker."""
    opened: list[MessageId] = []
    original = RangeScan._open

    async def recorded(scan: RangeScan, start: MessageId, window: int) -> Reader:
        opened.append(start)
        return await original(scan, start, window)

    monkeypatch.setattr(RangeScan, "_open", recorded)
    return opened

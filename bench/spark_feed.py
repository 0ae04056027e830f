"""The Spark source without a broker: the same code, fed from a file of the same stored entries.

A file holds the entries of one topic in order: ledger id (8) entry id (8) size (4) entry, big-endian.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader

from quire.client.deliveries import Deliveries
from quire.client.message_id import MessageId
from quire.spark.options.parse import Options
from quire.spark.planning.planner import Planner
from quire.spark.readers import RangePartition
from quire.spark.reading.columns import Columns
from quire.spark.reading.scan import read_range
from quire.spark.reading.schema import ddl, names_of_schema
from quire.spark.runtime import client_options, runtime

_HEAD = Struct("!qqI")
_DELIVERY_BYTES = 256 << 10
"""Stored bytes in one Deliveries, about as many as arrive at a time from a broker."""


def dump(service_url: str, topic: str, last: MessageId, path: Path) -> int:
    """Write the topic's entries up to `last` into a file; return how many. Blocking."""
    loop = runtime()
    options = Options.parse({"service.url": service_url, "topic": topic}, use="batch")

    async def copy(file: BinaryIO) -> int:
        count = 0
        lease = await loop.lease(service_url, client_options(options))
        reader = await lease.client.reader(topic, MessageId(-1, -1), window=10_000)
        while True:
            found = await reader.receive()
            for ledger_id, entry_id, entry in zip(found.ledger_ids, found.entry_ids, found.entries, strict=True):
                file.write(_HEAD.pack(ledger_id, entry_id, len(entry)) + entry)
                count += 1
                if (ledger_id, entry_id) == (last.ledger_id, last.entry_id):
                    await reader.close()
                    lease.release()
                    return count

    with open(path, "wb") as file:
        return loop.call(copy, file)


def deliveries(path: str, first: tuple[int, int]) -> Iterator[Deliveries]:
    """Yield the entries of the file from `first` (ledger, entry) on."""
    begun = False
    found, size = Deliveries(), 0
    with open(path, "rb", buffering=1 << 20) as file:
        while head := file.read(_HEAD.size):
            ledger_id, entry_id, length = _HEAD.unpack(head)
            if not begun:
                if (ledger_id, entry_id) != first:
                    file.seek(length, 1)
                    continue
                begun = True
            found.ledger_ids.append(ledger_id)
            found.entry_ids.append(entry_id)
            found.entries.append(file.read(length))
            size += length
            if size >= _DELIVERY_BYTES:
                yield found
                found, size = Deliveries(), 0
    if found.entries:
        yield found


class FileSource(DataSource):  # type: ignore[misc]  # (pyspark's classes are not seen by the type checker)
    """`format("quire_file")`: options of the source, and `file`."""

    @classmethod
    def name(cls) -> str:
        return "quire_file"

    def schema(self) -> str:
        return ddl()

    def reader(self, schema: Any) -> DataSourceReader:
        given = dict(self.options)
        return FileReader(given.pop("file"), Options.parse(given, use="batch"), names_of_schema(schema))


class FileReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, path: str, options: Options, names: tuple[str, ...]) -> None:
        self._path = path
        self._options = options
        self._names = names

    def partitions(self) -> list[RangePartition]:
        planner = Planner(self._options)
        try:
            return [RangePartition(work) for work in planner.batch()]
        finally:
            planner.close()

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        work = partition.work
        first = (work.ranges[0].ledger_id, work.ranges[0].first)
        return read_range(work, self._options, Columns(self._names, work.partition), deliveries(self._path, first))

"""Writing of one attempt of one task: rows to messages of topics, at least once.

An attempt names its producers after itself (`Attempt.producer_name`), and its rows are sent in the order in which Spark
gives them; the rows of a key keep their order. `exact` has the writer that writes them once over all attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol, cast

import pyarrow as pa

from quire.client.errors import NotAllowedError
from quire.client.packing import Packed, pack
from quire.client.routing import HashingScheme
from quire.spark.errors import SinkError
from quire.spark.options.parse import Options
from quire.spark.runtime import client_options, runtime
from quire.spark.sink.attempts import Attempt, Written
from quire.spark.sink.columns import VALUE, Rows, SinkColumns, pieces, shown
from quire.spark.sink.producers import Producers
from quire.spark.sink.routing import Indexes, Router
from quire.spark.values.encoding import Encoding
from quire.wire.pulsar import PulsarApi_pb2 as pb

UNLIMITED = 1 << 30


class Door(Protocol):
    """Interface of producers for a writer, blocking: `Producers` on the runtime's loop, or a test's."""

    def partitions(self, topics: Sequence[str]) -> list[int]: ...

    def last_id(self, target: str) -> int: ...

    def schema_version(self, target: str) -> bytes: ...

    def send(self, runs: Sequence[tuple[str, Sequence[Packed]]]) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class Blocking:
    """`Producers` on the runtime's loop, for the thread of a task."""

    def __init__(self, options: Options, name: str, schema: pb.Schema | None = None) -> None:
        self._call = runtime().call
        self._lease = self._call(runtime().lease, options.service_url, client_options(options))
        self._producers = Producers(
            self._lease.client, name, sequenced=options.exactly_once, chunking=options.chunking, schema=schema
        )

    def partitions(self, topics: Sequence[str]) -> list[int]:
        return self._call(self._producers.partitions, topics)

    def last_id(self, target: str) -> int:
        return self._call(self._producers.last_id, target)

    def schema_version(self, target: str) -> bytes:
        return self._call(self._producers.schema_version, target)

    def send(self, runs: Sequence[tuple[str, Sequence[Packed]]]) -> None:
        self._call(self._producers.send, runs)

    def flush(self) -> None:
        self._call(self._producers.flush)

    def close(self) -> None:
        self._call(self._close)

    async def _close(self) -> None:
        try:
            await self._producers.close()
        finally:
            self._lease.release()


class TaskWriter:
    """Writer of the rows of one attempt of one task."""

    _in_order = False
    """True if rows keep their order beyond their keys."""

    def __init__(
        self,
        options: Options,
        columns: SinkColumns,
        attempt: Attempt,
        open_door: Callable[[Options, str], Door] = Blocking,
        encoding: Encoding | None = None,
    ) -> None:
        """`encoding`: encoding of the column `value`; None: it has the payloads."""
        self._encoding = encoding
        self._encode = None if encoding is None else encoding.encode_rows
        if encoding is not None and open_door is Blocking:
            open_door = partial(Blocking, schema=encoding.schema())
        self._keys_as_base64 = encoding is not None and encoding.separated
        self._options = options
        self._columns = columns
        self._attempt = attempt
        self._open_door = open_door
        self._router = Router(
            options.topic or None,
            cast(HashingScheme, options.hashing_scheme),
            first=attempt.partition,
            keys_as_base64=self._keys_as_base64,
        )
        self._door: Door | None = None
        self._rows = 0
        self._size = 0

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Write all rows, and wait until all are durable. A task without rows opens nothing. Raises SinkError."""
        try:
            for piece in self._pieces(batches):
                self._write(piece)
            self._finish()
        finally:
            if self._door is not None:
                self._door.close()
        return Written(self._attempt, self._rows, self._size, self._router.count)

    def _pieces(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield all rows, in the order and in the pieces in which they are written; none of them is empty."""
        for batch in batches:
            yield from pieces(batch)

    def _name(self) -> str:
        """Return the name of the producers."""
        return self._attempt.producer_name()

    def _send(self, door: Door, rows: Rows, routed: Mapping[str, Indexes]) -> None:
        """Send rows to their targets."""
        door.send([(target, self._pack(rows, indexes, target)) for target, indexes in routed.items()])

    def _finish(self) -> None:
        """Wait until all rows are durable."""
        if self._door is not None:
            self._door.flush()

    def _write(self, piece: pa.RecordBatch) -> None:
        rows = self._columns.rows(piece, self._encode)
        topics = self._router.topics(rows)
        if self._door is None:
            self._door = self._open_door(self._options, self._name())
        unknown = self._router.unknown(topics)
        if unknown:
            for topic, count in zip(unknown, self._door.partitions(unknown), strict=True):
                self._router.tell(topic, count)
        routed = self._router.route(rows, topics)
        try:
            self._send(self._door, rows, routed)
        except SinkError as error:
            if isinstance(error.__cause__, NotAllowedError):
                raise SinkError(f"{error}{_largest(rows)}") from error
            raise
        self._rows += len(rows)
        self._size += sum(len(value) for value in rows.values if value is not None)

    def _pack(self, rows: Rows, indexes: Indexes, target: str) -> list[Packed]:
        all_of_them = len(indexes) == len(rows)  # ascending, so they are all, in order
        return self._packed_for(rows if all_of_them else rows.take(indexes), target)

    def _packed_for(self, rows: Rows, target: str) -> list[Packed]:
        """Return the entries of all of these rows. Raises SinkError with the row that cannot be sent."""
        version = b""
        if self._encoding is not None:
            assert self._door is not None, "it is opened before the first row is packed"
            version = self._door.schema_version(target)
        try:
            return self._packed(rows, version)
        except ValueError as error:
            raise SinkError(self._culprit(rows, target, error)) from error

    def _packed(self, rows: Rows, schema_version: bytes = b"") -> list[Packed]:
        return pack(
            rows.values,
            rows.keys,
            rows.properties,
            rows.event_ms,
            ordering_keys=rows.ordering_keys,
            deliver_ms=rows.deliver_ms,
            schema_version=schema_version,
            batch=self._options.batching,
            in_order=self._in_order,
            keys_as_base64=self._keys_as_base64,
            compression=self._options.compression,
            # the broker announces its limit to the producer, which applies it
            message_size_max=UNLIMITED,
        )

    def _culprit(self, rows: Rows, target: str, error: ValueError) -> str:
        """Find the row that cannot be sent, by packing each alone; only a failing task has this cost."""
        for number in range(len(rows)):
            row = rows.take([number])
            try:
                self._packed(row)
            except ValueError as alone:
                size = len(row.values[0] or b"")
                key = f" (key {shown(row.keys[0])})" if row.keys is not None else ""
                return (
                    f"column {VALUE} of {size} bytes, {shown(row.values[0])}{key}, cannot be written to {target}: "
                    f"{alone}"
                )
        return f"rows for {target} cannot be written: {error}"


def _largest(rows: Rows) -> str:
    size, at = max((len(value or b""), -at) for at, value in enumerate(rows.values))
    key = f" (key {shown(rows.keys[-at])})" if rows.keys is not None else ""
    return f"; the largest row sent with it has a column {VALUE} of {size} bytes, {shown(rows.values[-at])}{key}"

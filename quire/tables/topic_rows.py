"""Rows of topics, planned once and read as often as wanted, each time with the columns that are wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa

from quire.spark.errors import OptionError
from quire.spark.options.parse import Options
from quire.spark.plain_errors import plain_errors
from quire.spark.planning.planner import Planner
from quire.spark.planning.tasks import TopicRange
from quire.spark.reading.columns import TYPES, Columns
from quire.spark.reading.scan import read_range
from quire.spark.sink.columns import VALUE
from quire.spark.values.decoded import DECODE_ERROR, RAW_VALUE, DecodedBatches, Decoding
from quire.spark.values.decoding import shape_of
from quire.spark.values.registry import Registry
from quire.tables.reading_ahead import ReadingAhead

RANGE_BYTES = 16 << 20
"""Approximate stored bytes of a range that one thread reads."""
PARALLEL_MAX = 64


class TopicRows:
    """Rows between the start and the end of topics, as they were when this was made."""

    def __init__(self, options: Options, *, parallel: int = 4, buffer_bytes: int = 128 << 20) -> None:
        """Plan the read: the brokers are asked for the logs, and with `decode=schema` for the schemas.

        Raises OptionError, SchemaError, SourceUnavailableError and other SparkSourceErrors."""
        if not 1 <= parallel <= PARALLEL_MAX:
            raise OptionError("parallel", str(parallel), f"give 1 to {PARALLEL_MAX}")
        if buffer_bytes < 1:
            raise OptionError("buffer_bytes", str(buffer_bytes), "give a number of bytes, at least 1")
        self._options = options
        self._parallel = parallel
        self._buffer_bytes = buffer_bytes
        with plain_errors():
            self._decoding = _decoding(options)
            planner = Planner(options)
            try:
                self._ranges = planner.batch(RANGE_BYTES)
            finally:
                planner.close()
        self.schema = self._schema_of(options.columns)

    def reader(self, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """Return a reader of the rows. It reads nothing before its first batch is asked for.

        Args:
            columns: names of `schema` to read, in order; None: all of them.
        """
        names = tuple(self.schema.names if columns is None else columns)
        return pa.RecordBatchReader.from_batches(self._schema_of(names), self._batches(names))

    def _batches(self, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        return ReadingAhead(
            self._ranges,
            lambda work: self._read(work, names),
            parallel=self._parallel,
            buffer_bytes=self._buffer_bytes,
        ).batches()

    def _read(self, work: TopicRange, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        decoding = self._decoding
        with plain_errors():
            if decoding is None or not {VALUE, RAW_VALUE, DECODE_ERROR} & set(names):
                yield from read_range(work, self._options, Columns(names, work.partition))
                return
            decoding = Decoding(decoding.read, names, decoding.on_error)
            with closing(Registry(self._options)) as registry:
                decoder = DecodedBatches(decoding, work.partition, registry, _no_letters)
                for raw in read_range(work, self._options, Columns(decoding.raw_names, work.partition)):
                    yield decoder.batch(raw)

    def _schema_of(self, names: Sequence[str]) -> pa.Schema:
        types = {name: arrow for name, (_, arrow) in TYPES.items()}
        if self._decoding is not None:
            types |= {VALUE: shape_of(self._decoding.read.schema).arrow, RAW_VALUE: pa.binary()}
            types[DECODE_ERROR] = pa.string()
        return pa.schema([pa.field(name, types[name]) for name in names])


def _decoding(options: Options) -> Decoding | None:
    if not options.decoding.by_schema:
        return None
    with closing(Registry(options)) as registry:
        return Decoding(registry.read_schema(), options.columns, options.decoding.on_error)


def _no_letters(_batch: pa.RecordBatch) -> None:
    raise AssertionError("a table has no dead letters: request_options refuses them")

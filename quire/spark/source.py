"""The class of `format("quire")` that Spark calls. Thin: planning/planner.py plans, reading/scan.py reads.

Spark makes a DataSource in the user's process, pickles it into others, and makes a reader there: in a process that
plans, kept for the life of a stream, and pickled from there into the workers that read. So nothing here connects before
it must, and nothing a planner learns is visible to a worker but what is in its partition. Each of these processes
imports only what it needs, because Spark starts about six of them for a query.

`stop` does nothing, and is not even called (the process that plans just ends): the broker notices the closed
connection, and the subscription stays, because it retains the data between two runs.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from quire.spark.errors import SparkSourceError
from quire.spark.options.parse import Options
from quire.spark.plain_errors import plain_errors
from quire.spark.reading.schema import ddl, names_of_schema

if TYPE_CHECKING:
    from quire.spark.values.decoded import Decoding


class QuireDataSource(DataSource):  # type: ignore[misc]
    """Data source of Apache Pulsar topics: `spark.read.format("quire")` and `spark.readStream.format("quire")`.

    Options are in docs/spark-options.md (quire.spark.options.table), columns in quire.spark.reading.schema.

    Example:
        frame = (
            spark.readStream.format("quire")
            .option("service.url", "pulsar://localhost:6650")
            .option("topic", "orders")
            .option("subscription", "orders-archive")
            .load()
        )
    """

    @classmethod
    def name(cls) -> str:
        return "quire"

    def schema(self) -> str:
        """Return the schema in Spark's notation: all columns, or those of the option `columns`. With `decode=schema`
        the brokers are asked for the type of `value`.

        Raises:
            OptionError: the option `columns` has an unknown or repeated column, or the topics' options are invalid.
            SchemaError: the values of the topics have no common type.
        """
        with plain_errors():
            options = Options.for_schema(dict(self.options))
            if not options.decoding.by_schema:
                return ddl(options.columns)
            from quire.spark.values.decoded import decoded_ddl
            from quire.spark.values.registry import Registry

            with closing(Registry(options)) as registry:
                return decoded_ddl(options.columns, registry.read_schema())

    def reader(self, schema: Any) -> DataSourceReader:
        from quire.spark.readers import QuireReader

        with plain_errors():
            options = Options.parse(dict(self.options), use="batch")
            return QuireReader(options, *_columns_of(options, schema))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        """Return a reader for a stream, even for invalid options: its first call raises their error.

        PySpark's runner hides an exception raised here behind an UnboundLocalError of its own (its `finally` stops a
        reader that was never made).

        Args:
            schema: the StructType of the columns to read.

        Returns:
            The reader, whose calls raise OptionError if the options are invalid.
        """
        from quire.spark.readers import QuireStreamReader, RefusedStreamReader

        try:
            with plain_errors():
                options = Options.parse(dict(self.options), use="stream")
                return QuireStreamReader(options, *_columns_of(options, schema))
        except SparkSourceError as error:
            return RefusedStreamReader(error)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        from quire.spark.sink.writing import QuireWriter

        return QuireWriter(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        from quire.spark.sink.writing import QuireStreamWriter

        return QuireStreamWriter(dict(self.options), schema, overwrite)


def _columns_of(options: Options, schema: Any) -> tuple[tuple[str, ...], Decoding | None]:
    """Return the columns of a read, and how values are decoded; None: they are not.

    Raises OptionError, SchemaError, SourceUnavailableError."""
    if not options.decoding.by_schema:
        return names_of_schema(schema), None
    from quire.spark.values.decoded import Decoding, decoded_names
    from quire.spark.values.registry import Registry

    names, value = decoded_names(schema)
    with closing(Registry(options)) as registry:
        read = registry.read_schema(None if value is None else value.simpleString())
    return names, Decoding(read, names, options.decoding.on_error)

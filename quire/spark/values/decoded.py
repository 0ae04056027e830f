"""Record batches with decoded values: raw columns in, those of the query out.

A value that cannot be decoded never disappears silently. By the option `onDecodeError` the task fails (`fail`), the
column is null and `__decodeError` has the reason (`null`), or the message goes to another topic, whole and with the
reason, and is there before the rows behind it are passed on (`deadLetter`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from quire.spark.errors import OptionError, UndecodableError
from quire.spark.reading.schema import ddl, names_of_schema
from quire.spark.sink.columns import EVENT_TIME, KEY, PROPERTIES, VALUE
from quire.spark.values.decoding import ValueDecoder, ValueSchema
from quire.spark.values.registry import ReadSchema

RAW_VALUE, DECODE_ERROR, SCHEMA_VERSION = "__rawValue", "__decodeError", "__schemaVersion"
_LETTER = (KEY, "__ledger", "__entry", "__batch", "__partition", "__topic", EVENT_TIME, PROPERTIES)
"""Columns that a dead letter is made of, besides the value."""

REAL_TOPIC, ORIGIN = "REAL_TOPIC", "ORIGIN_MESSAGE_ID"
"""Properties of a dead letter, as the official clients name them; the id is ledger:entry:partition:batch."""
WHY, WRITTEN_WITH = "DECODE_ERROR", "SCHEMA_VERSION"


@dataclass(frozen=True, slots=True)
class Decoding:
    """Plan of the decoding of a query. Plain data: travels to the workers."""

    read: ReadSchema
    names: tuple[str, ...]
    """Columns of the query, in order."""
    on_error: str
    """fail, null or deadLetter."""

    @property
    def raw_names(self) -> tuple[str, ...]:
        """Columns to read: those of the query that are not made here, and those that decoding needs."""
        needed = {VALUE, SCHEMA_VERSION, "__ledger", "__entry"}  # (the last two for errors)
        if self.read.schema.separated:
            needed.add(KEY)
        if self.on_error == "deadLetter":
            needed.update(_LETTER)
        asked = [name for name in self.names if name not in (RAW_VALUE, DECODE_ERROR)]
        return tuple(dict.fromkeys([*asked, *sorted(needed)]))


def decoded_ddl(names: Sequence[str], read: ReadSchema) -> str:
    """Return the schema of a query in Spark's notation."""
    made = {VALUE: read.ddl, RAW_VALUE: "BINARY", DECODE_ERROR: "STRING"}
    return ", ".join(f"{name} {made[name]}" if name in made else ddl([name]) for name in names)


def decoded_names(schema: Any) -> tuple[tuple[str, ...], Any]:
    """Return the columns of a StructType, and the type of `value` among them (pyspark's; None: it is not read).

    Raises OptionError for other columns, types or nullability."""
    from pyspark.sql.types import BinaryType, StringType, StructType

    made = {RAW_VALUE: BinaryType(), DECODE_ERROR: StringType()}
    value = None
    for field in schema.fields:
        if field.name == VALUE:
            value = field.dataType
        elif field.name in made and field.dataType != made[field.name]:
            raise OptionError("schema", f"{field.name} {field.dataType.simpleString()}", "it is BINARY or STRING")
    others = StructType([field for field in schema.fields if field.name not in (VALUE, *made)])
    if others.fields:
        names_of_schema(others)
    return tuple(field.name for field in schema.fields), value


class SchemaVersions(Protocol):
    """Schemas of a topic by version: `Registry`, or a test's."""

    def version(self, topic: str, number: int) -> ValueSchema | None: ...


Letters = Callable[[pa.RecordBatch], None]
"""Write rows to the dead-letter topic; they are durable on return."""


class DecodedBatches:
    """Decoder of the record batches of one partition."""

    def __init__(self, decoding: Decoding, partition: str, versions: SchemaVersions, letters: Letters) -> None:
        self._decoding = decoding
        self._partition = partition
        self._decoder = ValueDecoder(decoding.read.schema, lambda number: versions.version(partition, number))
        self._letters = letters
        self.undecodable = 0
        """Rows so far whose values could not be decoded."""

    def batch(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch of the query, which has fewer rows if some became dead letters.

        Raises UndecodableError, SinkError, SourceUnavailableError."""
        rows = raw.num_rows
        values = raw.column(VALUE).to_pylist()
        keys = raw.column(KEY).to_pylist() if self._decoding.read.schema.separated else [None] * rows
        versions = raw.column(SCHEMA_VERSION).to_pylist()
        decoded = self._decoder.decode(values, keys, versions)
        self.undecodable += len(decoded.problems)
        if decoded.problems and self._decoding.on_error == "fail":
            raise self._failure(raw, decoded.problems)
        errors = pa.array([decoded.problems.get(row) for row in range(rows)], pa.string())
        made = {VALUE: decoded.values, RAW_VALUE: raw.column(VALUE), DECODE_ERROR: errors}
        names = self._decoding.names
        columns = [made[name] if name in made else raw.column(name) for name in names]
        batch = pa.RecordBatch.from_arrays(columns, names=list(names))
        if decoded.problems and self._decoding.on_error == "deadLetter":
            self._letters(dead_letters(raw, decoded.problems))
            batch = batch.filter(errors.is_null())
        return batch

    def _failure(self, raw: pa.RecordBatch, problems: dict[int, str]) -> UndecodableError:
        row, why = next(iter(problems.items()))
        where = f"{raw.column('__ledger')[row]}:{raw.column('__entry')[row]}"
        version = raw.column(SCHEMA_VERSION)[row].as_py()
        written = "without a schema" if version is None else f"with schema version {version}"
        return UndecodableError(
            f"{self._partition}: message {where}, published {written}, is no value of schema version"
            f" {self._decoding.read.version} ({why}). Set onDecodeError=null or onDecodeError=deadLetter, or read with"
            " decode=none"
        )


def dead_letters(raw: pa.RecordBatch, problems: dict[int, str]) -> pa.RecordBatch:
    """Return the messages of some rows with the reasons in their properties, in the columns of the sink."""
    rows = pa.array(list(problems), pa.int64())
    chosen = raw.take(rows)
    fields = {name: chosen.column(name).to_pylist() for name in (*_LETTER, SCHEMA_VERSION)}
    properties: list[list[tuple[str, str]]] = []
    for at, why in enumerate(problems.values()):
        partition, batch = (
            -1 if found is None else found for found in (fields["__partition"][at], fields["__batch"][at])
        )
        topic = fields["__topic"][at] + ("" if partition < 0 else f"-partition-{partition}")
        more = {
            REAL_TOPIC: topic,
            ORIGIN: f"{fields['__ledger'][at]}:{fields['__entry'][at]}:{partition}:{batch}",
            WHY: why,
        }
        if fields[SCHEMA_VERSION][at] is not None:
            more[WRITTEN_WITH] = str(fields[SCHEMA_VERSION][at])
        properties.append(list({**dict(fields[PROPERTIES][at]), **more}.items()))
    return pa.RecordBatch.from_arrays(
        [
            chosen.column(VALUE),
            chosen.column(KEY),
            pa.array(properties, pa.map_(pa.string(), pa.string())),
            chosen.column(EVENT_TIME),
        ],
        names=[VALUE, KEY, PROPERTIES, EVENT_TIME],
    )

"""Names and types of the columns of the source, in Spark's notation. Pure, and without Arrow: processes that only name
columns load nothing else.

    __key BINARY            the message's key; null: none
    value BINARY            null: a tombstone
    __topic STRING          full name, without -partition-N
    __partition INT         null: the topic is not partitioned
    __messageId BINARY      MessageIdData, as official clients serialize a message id
    __ledger BIGINT         where the entry stands ...
    __entry BIGINT
    __batch INT             ... and the message in it; null: the entry is no batch
    __publishTime TIMESTAMP
    __eventTime TIMESTAMP   null: the producer gave none
    __properties MAP<STRING, STRING>    empty: none
    __orderingKey BINARY    null: none; like the next one only where the option `columns` names it
    __schemaVersion BIGINT  null: published without a schema
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quire.spark.errors import OptionError
from quire.spark.options.parse import ON_REQUEST

SCHEMA_VERSION = "__schemaVersion"
NOTATION: dict[str, str] = {
    "__key": "BINARY",
    "value": "BINARY",
    "__topic": "STRING",
    "__partition": "INT",
    "__messageId": "BINARY",
    "__ledger": "BIGINT",
    "__entry": "BIGINT",
    "__batch": "INT",
    "__publishTime": "TIMESTAMP",
    "__eventTime": "TIMESTAMP",
    "__properties": "MAP<STRING, STRING>",
    "__orderingKey": "BINARY",
    SCHEMA_VERSION: "BIGINT",
}
"""Type of each column; the order is that of SCHEMA."""
NAMES = tuple(name for name in NOTATION if name not in ON_REQUEST)
"""Columns of a read without the option `columns`."""


def ddl(names: Sequence[str] = NAMES) -> str:
    """Return the schema of `names` as Spark reads it.

    >>> ddl(["value", "__ledger"])
    'value BINARY, __ledger BIGINT'
    """
    return ", ".join(f"{name} {NOTATION[name]}" for name in names)


SCHEMA = ddl()


def names_of_schema(schema: Any) -> tuple[str, ...]:
    """Return the columns of a StructType (the user's, passed on by Spark). Raises OptionError for other columns, types
    or nullability."""
    names = []
    for field in schema.fields:
        known = NOTATION.get(field.name)
        if known is None:
            raise OptionError("schema", field.name, f"there is no such column; there are {', '.join(NOTATION)}")
        wanted = known.lower().replace(" ", "")
        if field.dataType.simpleString() != wanted:
            remedy = f"column {field.name} has type {known}: read it with that type and cast it in the query"
            raise OptionError("schema", f"{field.name} {field.dataType.simpleString()}", remedy)
        if not field.nullable:
            raise OptionError(
                "schema", f"{field.name} NOT NULL", "the columns of this source are nullable: remove NOT NULL"
            )
        names.append(field.name)
    if not names:
        raise OptionError("schema", None, "it has no columns")
    return tuple(names)

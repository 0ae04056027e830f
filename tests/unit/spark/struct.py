"""A schema of one struct."""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

SPARK_TYPES = {
    "__key": BinaryType(),
    "value": BinaryType(),
    "__topic": StringType(),
    "__partition": IntegerType(),
    "__messageId": BinaryType(),
    "__ledger": LongType(),
    "__entry": LongType(),
    "__batch": IntegerType(),
    "__publishTime": TimestampType(),
    "__eventTime": TimestampType(),
    "__properties": MapType(StringType(), StringType()),
}


def struct(*names: str) -> StructType:
    return StructType([StructField(name, SPARK_TYPES[name]) for name in names])

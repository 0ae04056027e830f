"""Errors of queries. Reading a topic raises those of quire.spark.errors."""

from __future__ import annotations

from typing import ClassVar


class TableError(Exception):
    """Root of this package's errors."""

    passing: ClassVar[bool] = False
    """Mark of errors after which the same call may succeed: those of a class whose docstring says "Passing"."""


class QueryError(TableError):
    """A query is malformed, is no single SELECT, or names something that does not exist. Permanent: change the query as
    the text says."""

"""Display of errors by Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from quire.spark.errors import SparkSourceError

_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""Variable that makes Spark show an error without the Python stack. Source: pyspark.util.handle_worker_exception."""
_WORKER_MARKS = ("PYTHON_WORKER_FACTORY_SECRET", "PYTHON_WORKER_FACTORY_PORT", "PYTHON_WORKER_FACTORY_SOCK_DIR")
"""Variables of which one is set in the processes that Spark starts, and none in the user's own."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise errors that this package explains as one line.

    In a process of Spark, which ends with the error, without the stack; a client's error as a SparkSourceError. Any
    other error is internal and keeps its stack."""
    try:
        yield
    except SparkSourceError:
        hide_traceback()
        raise
    except Exception as error:
        # Imported here, because most processes of Spark's have no client.
        from quire.client.errors import ClientError

        if not isinstance(error, ClientError):
            raise
        hide_traceback()
        raise SparkSourceError(f"{type(error).__name__}: {error}") from None


def hide_traceback() -> None:
    """Make Spark show the following error without its stack, if this is a process of Spark's."""
    if any(mark in os.environ for mark in _WORKER_MARKS):
        os.environ[_HIDE_TRACEBACK] = "1"
